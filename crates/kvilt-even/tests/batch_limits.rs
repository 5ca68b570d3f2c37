//! What a write batch may have at the most, and how that is said.

mod stepped;

use kvilt_base::{ErrorKind, WriteBatch};

/// Others wait while a batch is written, so it has a limit, which its error says.
#[test]
fn a_batch_beyond_the_limit_is_refused_and_the_error_says_the_limit() {
    let (db, _budget) = stepped::open(64 << 20);
    let batch = |operations: u32| {
        let mut batch = WriteBatch::new();
        for i in 0..operations {
            batch.put(i.to_be_bytes(), b"x");
        }
        batch
    };
    db.write(batch(32_768)).unwrap();
    let error = db.write(batch(32_769)).unwrap_err();
    assert_eq!((error.kind(), error.setting()), (ErrorKind::InvalidArgument, Some("batch_operations_max")));
    for told in ["32769 operations", "up to 32768", "`batch_operations_max`"] {
        assert!(error.message().contains(told), "{told} is not in: {error}");
    }
    let mut large = WriteBatch::new();
    large.put(b"a", vec![1; 37 << 20]).put(b"b", vec![1; 37 << 20]);
    let error = db.write(large).unwrap_err();
    assert!(error.message().contains("and 75497472 at once"), "{error}");
    assert_eq!(error.setting(), Some("batch_bytes_max"));
    let mut with_its_row = WriteBatch::new();
    with_its_row.put(b"blob", vec![1; 64 << 20]).put(b"blob/length", b"67108864");
    db.write(with_its_row).unwrap();
}
