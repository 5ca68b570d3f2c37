//! What becomes of a failed sync (D-5). A socket stands in for a broken drive: `fdatasync` refuses it.

use std::os::unix::net::UnixStream;

use super::*;

fn unsyncable() -> OwnedFd {
    UnixStream::pair().unwrap().0.into()
}

fn sync(slot: &Arc<Slot>) -> io::Result<()> {
    slot.with(|| Ok(rustix::fs::open("/dev/null", fs::OFlags::RDWR, fs::Mode::empty())?), |fd| slot.sync(fd))
}

#[test]
fn a_failed_sync_is_never_followed_by_a_good_one() {
    let slot = Slot::with_fd(Owner::next(), unsyncable());
    let first = sync(&slot).unwrap_err().raw_os_error();
    assert_eq!(first, Some(Errno::INVAL.raw_os_error()));
    assert_eq!(sync(&slot).unwrap_err().raw_os_error(), first);
    slot.close();
}

#[test]
fn a_sync_that_fails_while_making_room_is_told_to_the_next_who_syncs() {
    let slot = Slot::with_fd(Owner::next(), unsyncable());
    slot.mark_dirty();
    assert!(slot.evict());
    assert!(slot.fd.read().is_none());
    assert!(sync(&slot).is_err(), "though the descriptor is a new one");
    slot.close();
}

#[test]
fn what_is_pinned_or_in_use_stays_open() {
    let slot = Slot::with_fd(Owner::next(), unsyncable());
    slot.pin();
    assert!(!slot.evict());
    slot.unpin();
    let guard = slot.fd.read();
    assert!(!slot.evict());
    drop(guard);
    assert!(slot.evict());
    assert!(!slot.evict(), "it is closed already");
}
