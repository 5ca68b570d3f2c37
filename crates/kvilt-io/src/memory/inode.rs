//! `Inode`: the bytes of one file in memory, and the writes since its last sync, which a crash may undo.
//!
//! Nothing here hears of a store through a mapping. So before `writes` is used, each run of pages that differ
//! from `live` becomes a write.
//!
//! After a failed sync the kernel has pages that it takes to be clean, and the platter does not have their
//! bytes. A page that is written again goes to the platter whole: so a write takes its pages whole then.
//!
//! What is always true: undoing `writes` from the last to the first gives the bytes on the platter — unless a
//! failed sync has lost some, then these are kept apart in `platter`.

use std::{io, mem, ops::Range, sync::Arc};

use kvilt_base::{FileName, Mapping};
use parking_lot::Mutex;

use super::mapped::{Mapped, PAGE_BYTES, changed_runs};

/// A file in memory. Shared by its names and its handles; all calls lock it for themselves.
pub(super) struct Inode(Mutex<Contents>);

/// See the module.
#[derive(Clone)]
pub(super) struct Contents {
    /// The newest name.
    pub(super) name: FileName,
    /// What readers see; if it is mapped, what they saw when `writes` was looked at last.
    pub(super) live: Extent,
    /// Since the last sync, oldest first.
    pub(super) writes: Vec<Write>,
    /// What is durable, where that is not `live` less `writes`: after a sync failed.
    pub(super) platter: Option<Extent>,
    /// Somebody has it mapped: what readers see is there.
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
    /// It is what stores through a mapping did: any number of them, at any time.
    pub(super) is_of_mapping: bool,
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
        self.had_len(self.len_before.max(end));
        let (start, end) = (offset.max(self.offset), end.min(self.offset + self.before.len()));
        if start < end {
            self.before[start - self.offset..end - self.offset]
                .copy_from_slice(&bytes[start - offset..end - offset]);
        }
    }

    /// The file has become so long for good: to take this back leaves it so.
    fn had_len(&mut self, len: usize) {
        let mut before = mem::take(&mut self.before).into_vec();
        // What the file did not have before it has as zeros now.
        before.resize(self.end().min(len).saturating_sub(self.offset), 0);
        (self.len_before, self.before) = (len, before.into());
    }

    /// Whether it wrote any of these bytes.
    pub(super) fn touches(&self, range: &Range<usize>) -> bool {
        self.offset < range.end && range.start < self.end()
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

    /// Maps a part. That makes nothing durable.
    pub(super) fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        let mut contents = self.0.lock();
        if contents.mapped.is_none() {
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
        contents.notice_stores();
        if let Some(mapped) = &contents.mapped {
            mapped.write(offset, data);
        }
        contents.live.overwrite(offset, data);
        contents.writes.iter_mut().for_each(|write| write.keep_durable(offset, data));
        if let Some(platter) = &mut contents.platter {
            platter.overwrite(offset, data);
        }
    }

    pub(super) fn sync(&self) {
        let mut contents = self.0.lock();
        contents.notice_stores();
        let platter = contents.platter_after_sync();
        let is_whole = contents.platter.is_none() || platter.as_slice() == contents.live.as_slice();
        contents.platter = (!is_whole).then_some(platter);
        contents.writes.clear();
    }

    /// A sync that fails: what was written since the last one will never be on the platter, unless its page
    /// is written again.
    pub(super) fn lose_unsynced(&self) {
        let mut contents = self.0.lock();
        contents.notice_stores();
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
        contents.notice_stores();
        contents.writes.clear();
        contents.platter = None;
        let outcome = contents.live.change(change);
        if let Some(mapped) = &contents.mapped {
            mapped.replace(contents.live.as_slice());
        }
        outcome
    }

    /// Makes it `len` bytes long. The length is durable at once, for nobody may rely on what it was before;
    /// of the bytes none is that was not.
    pub(super) fn resize(&self, len: usize) {
        let mut contents = self.0.lock();
        contents.notice_stores();
        if let Some(mapped) = &contents.mapped {
            mapped.resize(len);
        }
        contents.live.change(|bytes| bytes.resize(len, 0));
        if let Some(platter) = &mut contents.platter {
            platter.change(|bytes| bytes.resize(len, 0));
        }
        contents.writes.retain_mut(|write| {
            write.len = write.end().min(len).saturating_sub(write.offset);
            write.had_len(len);
            write.len > 0
        });
    }

    /// What is there when the process has died: nobody has it mapped.
    pub(super) fn copy_contents(&self) -> Contents {
        let mut contents = self.0.lock().clone();
        contents.notice_stores();
        Contents { mapped: None, ..contents }
    }

    /// Lets `look` see the contents. To look changes nothing: what comes next is the same if nobody does.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Contents) -> T) -> T {
        let contents = self.0.lock();
        if contents.mapped.is_none() {
            return look(&contents);
        }
        let mut seen = contents.clone();
        drop(contents);
        seen.notice_stores();
        look(&seen)
    }
}

impl Contents {
    /// Writes what a crash may undo.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.notice_stores();
        if let Some(mapped) = &self.mapped {
            mapped.write(offset, data);
        }
        self.record(offset, data, false);
    }

    /// Makes writes of the pages that stores through a mapping have changed since this was called last.
    fn notice_stores(&mut self) {
        let Some(mapped) = &self.mapped else { return };
        let bytes = mapped.bytes();
        for run in changed_runs(self.live.as_slice(), &bytes) {
            self.record(run.start, &bytes[run], true);
        }
    }

    /// Changes what readers see, and notes how to undo it.
    fn record(&mut self, offset: usize, data: &[u8], is_of_mapping: bool) {
        let takes_pages = self.platter.is_some();
        let write = self.live.change(|bytes| {
            let (len_before, end) = (bytes.len(), offset + data.len());
            let noted = if takes_pages {
                offset / PAGE_BYTES * PAGE_BYTES..end.next_multiple_of(PAGE_BYTES).min(len_before.max(end))
            } else {
                offset..end
            };
            // What lay in a gap before the write was nothing: the length alone undoes it.
            let before = bytes[noted.start.min(len_before)..noted.end.min(len_before)].into();
            bytes.resize(len_before.max(end), 0);
            bytes[offset..end].copy_from_slice(data);
            Write { offset: noted.start, len: noted.len(), len_before, before, is_of_mapping }
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
