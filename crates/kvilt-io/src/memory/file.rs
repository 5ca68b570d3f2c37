//! `MemoryFile`: a handle on an inode. Its changing calls are calls of the world, in their order.

use std::{fmt, io, sync::Arc};

use kvilt_base::{
    File, FileName, Mapping,
    queue::{BLOCK_BYTES, check_blocks},
};

use super::{State, Turn, World, inode::Inode};

/// See the module.
pub(super) struct MemoryFile {
    pub(super) world: Arc<World>,
    pub(super) inode: Arc<Inode>,
}

impl File for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.world.state.lock().check()?;
        check_blocks(self.name(), offset, buffer)?;
        Ok(self.inode.read(offset, buffer))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        check_blocks(self.name(), offset, bytes)?;
        self.world.change(|state, _| {
            let mut taken = room_for(state, &self.inode, offset, bytes.len())?;
            if taken < bytes.len() && self.name().kind().is_direct() {
                // Room is given out in blocks, and a call past the page cache moves whole ones.
                taken -= taken % BLOCK_BYTES;
                if taken == 0 {
                    return Err(io::Error::from(io::ErrorKind::StorageFull));
                }
            }
            self.inode.write(usize::try_from(offset).expect("the end fits, see there"), &bytes[..taken]);
            Ok(taken)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.world.change(|state, turn| {
            if turn == Turn::Last {
                return Ok(());
            }
            if state.fails_sync() {
                self.inode.lose_unsynced();
                return Err(rustix::io::Errno::IO.into());
            }
            self.inode.sync();
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.world.change(|state, _| {
            let growth = len.saturating_sub(self.inode.len());
            let has_room = |capacity: u64| growth <= capacity.saturating_sub(state.total_bytes());
            if !state.capacity_bytes.is_none_or(has_room) {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
            self.inode.resize(len);
            Ok(())
        })
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        if !self.world.kernel.maps_files {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.world.change(|_, _| self.inode.map(offset, len))
    }

    fn changed_ns(&self) -> io::Result<u64> {
        self.world.state.lock().check()?;
        Ok(self.inode.changed_at())
    }

    fn len(&self) -> io::Result<u64> {
        self.world.state.lock().check()?;
        Ok(self.inode.len())
    }

    fn name(&self) -> FileName {
        self.inode.name()
    }
}

/// How many of the bytes of a write there is room for; an error if for none.
pub(super) fn room_for(state: &State, inode: &Inode, offset: u64, len: usize) -> io::Result<usize> {
    let end = offset.checked_add(len as u64).filter(|end| usize::try_from(*end).is_ok());
    let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let Some(capacity) = state.capacity_bytes else {
        return Ok(len);
    };
    let growth = end.saturating_sub(inode.len());
    let lacking = growth.saturating_sub(capacity.saturating_sub(state.total_bytes()));
    if lacking > 0 && lacking >= len as u64 {
        return Err(io::Error::from(io::ErrorKind::StorageFull));
    }
    Ok(len - usize::try_from(lacking).expect("less than the bytes"))
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({})", self.inode.name())
    }
}
