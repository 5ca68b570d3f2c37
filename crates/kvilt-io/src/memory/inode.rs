//! `Inode`: the bytes of one file in memory, and the writes since its last sync, which a crash may undo.
//!
//! What is always true: undoing `writes` from the last to the first gives the bytes on the platter — unless a
//! failed sync has lost some, then these are kept apart in `platter`.

use std::{io, mem, sync::Arc};

use kvilt_base::{FileName, Mapping};
use parking_lot::Mutex;

use super::mapped::Mapped;

/// A file in memory. Shared by its names and its handles; all calls lock it for themselves.
pub(super) struct Inode(Mutex<Contents>);

/// See the module.
#[derive(Clone)]
pub(super) struct Contents {
    /// The newest name.
    pub(super) name: FileName,
    /// What readers see.
    pub(super) live: Extent,
    /// Since the last sync, oldest first.
    pub(super) writes: Vec<Write>,
    /// What is durable, where that is not `live` less `writes`: after a sync failed.
    pub(super) platter: Option<Extent>,
    /// Somebody has it mapped: what readers see is there, and `live` is what it was when it was mapped or
    /// synced last.
    pub(super) mapped: Option<Arc<Mapped>>,
    /// Somebody has changed it behind the back of its owner.
    pub(super) is_damaged: bool,
}

/// The first `len` of some bytes, which others may share.
#[derive(Clone)]
pub(super) struct Extent {
    /// At least `len` long: an image that only lost appended bytes shares the vector of its origin.
    bytes: Arc<Vec<u8>>,
    len: usize,
}

/// One write, and what it takes to undo it.
#[derive(Clone)]
pub(super) struct Write {
    pub(super) offset: usize,
    pub(super) len: usize,
    /// The file's length before.
    pub(super) len_before: usize,
    /// What was overwritten; shorter than `len` where the write went beyond the end.
    pub(super) before: Box<[u8]>,
}

impl Extent {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Extent { len: bytes.len(), bytes: Arc::new(bytes) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The same bytes, fewer of them; nothing is copied.
    pub(super) fn cut(&self, len: usize) -> Self {
        assert!(len <= self.len, "a cut makes shorter");
        Extent { bytes: self.bytes.clone(), len }
    }

    /// Writes over and behind what is there; zeros fill a gap.
    pub(super) fn overwrite(&mut self, offset: usize, data: &[u8]) {
        self.change(|bytes| {
            bytes.resize(bytes.len().max(offset + data.len()), 0);
            bytes[offset..offset + data.len()].copy_from_slice(data);
        });
    }

    /// Changes the bytes, copying them first if others share them.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.truncate(self.len);
        let outcome = change(bytes);
        self.len = bytes.len();
        outcome
    }
}

impl Write {
    /// Some bytes have become durable that were written after this: to take it back leaves them alone.
    fn keep_durable(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        let len_before = self.len_before.max(end);
        let mut before = mem::take(&mut self.before).into_vec();
        // What the file did not have before it has as zeros now.
        before.resize(self.end().min(len_before).saturating_sub(self.offset), 0);
        let (start, end) = (offset.max(self.offset), end.min(self.offset + before.len()));
        if start < end {
            before[start - self.offset..end - self.offset]
                .copy_from_slice(&bytes[start - offset..end - offset]);
        }
        (self.len_before, self.before) = (len_before, before.into());
    }

    pub(super) fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Takes this write back; those after it must have been taken back already.
    pub(super) fn undo(&self, bytes: &mut Vec<u8>) {
        bytes[self.offset..self.offset + self.before.len()].copy_from_slice(&self.before);
        bytes.truncate(self.len_before);
    }
}

impl Inode {
    pub(super) fn new(name: FileName, bytes: Vec<u8>) -> Arc<Self> {
        Inode::from_contents(Contents {
            name,
            live: Extent::new(bytes),
            writes: Vec::new(),
            platter: None,
            mapped: None,
            is_damaged: false,
        })
    }

    pub(super) fn from_contents(contents: Contents) -> Arc<Self> {
        Arc::new(Inode(Mutex::new(contents)))
    }

    pub(super) fn name(&self) -> FileName {
        self.0.lock().name
    }

    pub(super) fn rename(&self, name: FileName) {
        self.0.lock().name = name;
    }

    pub(super) fn len(&self) -> u64 {
        self.0.lock().live.len() as u64
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let contents = self.0.lock();
        match &contents.mapped {
            Some(mapped) => mapped.bytes(),
            None => contents.live.as_slice().to_vec(),
        }
    }

    /// When it was changed, by a clock that stands still for its owner.
    pub(super) fn changed_at(&self) -> u64 {
        if self.0.lock().is_damaged { u64::MAX } else { 0 }
    }

    /// It is not what its owner has made.
    pub(super) fn damaged(self: Arc<Self>) -> Arc<Self> {
        self.0.lock().is_damaged = true;
        self
    }

    /// Maps a part; its bytes are durable as they are when it is mapped first, and it takes no writes from
    /// then on.
    pub(super) fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        let mut contents = self.0.lock();
        if contents.mapped.is_none() {
            contents.writes.clear();
            contents.platter = None;
            contents.mapped = Some(Arc::new(Mapped::new(contents.live.as_slice())?));
        }
        contents.mapped.as_ref().expect("it is mapped").map(offset, len)
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let contents = self.0.lock();
        if let Some(mapped) = &contents.mapped {
            return mapped.read(offset, buffer);
        }
        let bytes = contents.live.as_slice();
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        read
    }

    pub(super) fn write(&self, offset: usize, data: &[u8]) {
        self.0.lock().write(offset, data);
    }

    /// Writes what survives a power cut, whatever else does.
    pub(super) fn write_durably(&self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let mut contents = self.0.lock();
        if let Some(mapped) = &contents.mapped {
            // Its pages are kept or lost by themselves: nothing here says which are durable.
            return mapped.write(offset, data);
        }
        contents.live.overwrite(offset, data);
        contents.writes.iter_mut().for_each(|write| write.keep_durable(offset, data));
        if let Some(platter) = &mut contents.platter {
            platter.overwrite(offset, data);
        }
    }

    pub(super) fn sync(&self) {
        let mut contents = self.0.lock();
        if let Some(mapped) = &contents.mapped {
            contents.live = Extent::new(mapped.bytes());
        }
        if contents.platter.is_some() {
            contents.platter = Some(contents.platter_after_sync());
        }
        contents.writes.clear();
    }

    /// A sync that fails: what was written since the last one will never be on the platter.
    pub(super) fn lose_unsynced(&self) {
        let mut contents = self.0.lock();
        contents.platter = Some(contents.synced());
        contents.writes.clear();
    }

    /// Changes the platter itself: what comes of it is durable.
    pub(super) fn damage(&self, change: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        self.0.lock().is_damaged = true;
        self.change(change)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let mut contents = self.0.lock();
        contents.writes.clear();
        contents.platter = None;
        contents.live.change(change)
    }

    /// Makes it `len` bytes long. Durable at once: nobody may rely on what it was before.
    pub(super) fn resize(&self, len: usize) {
        if let Some(mapped) = &self.0.lock().mapped {
            mapped.resize(len);
        }
        self.change(|bytes| {
            bytes.resize(len, 0);
            true
        });
    }

    pub(super) fn copy_contents(&self) -> Contents {
        let contents = self.0.lock().clone();
        let mapped = contents.mapped.as_ref().map(|mapped| Extent::new(mapped.bytes()));
        Contents { live: mapped.unwrap_or_else(|| contents.live.clone()), mapped: None, ..contents }
    }

    /// Lets `look` see the contents.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Contents) -> T) -> T {
        look(&self.0.lock())
    }
}

impl Contents {
    /// Writes what a crash may undo.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if let Some(mapped) = &self.mapped {
            return mapped.write(offset, data);
        }
        let write = self.live.change(|bytes| {
            let len_before = bytes.len();
            if offset > len_before {
                bytes.resize(offset, 0);
            }
            let overlap = data.len().min(bytes.len() - offset);
            let before = bytes[offset..offset + overlap].into();
            bytes[offset..offset + overlap].copy_from_slice(&data[..overlap]);
            bytes.extend_from_slice(&data[overlap..]);
            // What lay in a gap before the write was nothing: the length alone undoes it.
            let before = if offset > len_before { Box::default() } else { before };
            Write { offset, len: data.len(), len_before, before }
        });
        self.writes.push(write);
    }

    /// What is durable for certain.
    pub(super) fn synced(&self) -> Extent {
        match &self.platter {
            Some(platter) => platter.clone(),
            None => self.before_write(0),
        }
    }

    /// What readers saw before write `index` (or now, if there is none).
    pub(super) fn before_write(&self, index: usize) -> Extent {
        let undone = &self.writes[index..];
        let Some(first) = undone.first() else {
            return self.live.clone();
        };
        let only_appended = undone.iter().all(|write| write.before.is_empty());
        if only_appended {
            return self.live.cut(first.len_before);
        }
        let mut bytes = self.live.as_slice().to_vec();
        for write in undone.iter().rev() {
            write.undo(&mut bytes);
        }
        Extent::new(bytes)
    }

    /// The platter once everything written since the failed sync has reached it.
    pub(super) fn platter_after_sync(&self) -> Extent {
        let Some(platter) = &self.platter else {
            return self.live.clone();
        };
        let mut platter = platter.clone();
        if self.writes.is_empty() {
            return platter;
        }
        let live = self.live.as_slice();
        platter.change(|bytes| {
            for write in &self.writes {
                if bytes.len() < write.end() {
                    bytes.resize(write.end(), 0);
                }
                bytes[write.offset..write.end()].copy_from_slice(&live[write.offset..write.end()]);
            }
        });
        platter
    }
}
