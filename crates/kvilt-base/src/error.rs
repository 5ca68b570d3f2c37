//! One public error: what happened, where, and what to do about it.
//!
//! The kinds are told apart by what a caller does next. Text is for people; code matches on [`ErrorKind`].

use std::{fmt, io, sync::Arc};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do next, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call itself is wrong; nothing was changed. Mend the call.
    InvalidArgument,
    /// A limit of the store or of this machine is reached (memory, descriptors, snapshots). Retry with less.
    LimitReached,
    /// The disk is full. Nothing of this write is visible; reads and deletes go on. Free space and retry.
    NoSpace,
    /// Somebody else holds the store. Wait, or stop the other one.
    Busy,
    /// The store was opened to be read only, and this would change it. Nothing was changed. Open it without.
    ReadOnly,
    /// The handle was closed. Open the store again.
    Closed,
    /// The handle belongs to the process that this one was forked from. Open stores after the fork, not
    /// before.
    Forked,
    /// The snapshot or scan was kept longer than the limit, and what it would read may be gone. Take a new
    /// one.
    SnapshotTooOld,
    /// A sync failed or a bug was seen: no more writes until the store is opened again. Reads go on.
    Poisoned,
    /// Bytes on disk contradict their checksum or an invariant. Restore or repair the named file.
    Corrupted,
    /// The files were written by a newer Kvilt. Nothing was touched. Upgrade.
    UnsupportedVersion,
    /// The operating system refused a call. The cause is in the source.
    Io,
}

impl ErrorKind {
    /// A short, stable name, as in `--json` output.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "invalid-argument",
            ErrorKind::LimitReached => "limit-reached",
            ErrorKind::NoSpace => "no-space",
            ErrorKind::Busy => "busy",
            ErrorKind::ReadOnly => "read-only",
            ErrorKind::Closed => "closed",
            ErrorKind::Forked => "forked",
            ErrorKind::SnapshotTooOld => "snapshot-too-old",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::Corrupted => "corrupted",
            ErrorKind::UnsupportedVersion => "unsupported-version",
            ErrorKind::Io => "io",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "correct the call; nothing was changed",
            ErrorKind::LimitReached => "free what it names, or raise the limit",
            ErrorKind::NoSpace => {
                "free disk space; reads and deletes still work, and writes resume by themselves"
            }
            ErrorKind::Busy => "close the other user of the store, or wait for it",
            ErrorKind::ReadOnly => "open the store without `read_only` to change it; nothing was changed",
            ErrorKind::Closed => "open the store again",
            ErrorKind::Forked => "open stores after the fork, or use them in the process that opened them",
            ErrorKind::SnapshotTooOld => "take a new snapshot, or raise the limit on their age",
            ErrorKind::Poisoned => "close the store and open it again; what was synced is safe",
            ErrorKind::Corrupted => {
                "run `kvilt check` to see what is damaged; other key ranges stay readable"
            }
            ErrorKind::UnsupportedVersion => {
                "open it with the newer Kvilt that wrote it; no byte was changed"
            }
            ErrorKind::Io => "see the cause; the operation may be retried",
        }
    }
}

/// What went wrong, where, and what to do. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    file: Option<String>,
    offset: Option<u64>,
    setting: Option<&'static str>,
    source: Option<Arc<io::Error>>,
}

impl Error {
    /// An error of `kind` with a sentence that says what happened.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Error(Arc::new(Inner { kind, message, file: None, offset: None, setting: None, source: None }))
    }

    /// The caller's argument is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// Bytes in `file` at `offset` contradict themselves.
    pub fn corrupted(file: impl fmt::Display, offset: u64, message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Corrupted, message).at(file, offset)
    }

    /// A failed system call; `doing` says what was tried. A full disk becomes [`ErrorKind::NoSpace`].
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ErrorKind::NoSpace
            }
            _ => ErrorKind::Io,
        };
        Error(Arc::new(Inner {
            kind,
            message: doing.into(),
            file: None,
            offset: None,
            setting: None,
            source: Some(Arc::new(source)),
        }))
    }

    /// The same error, placed in a file.
    #[must_use]
    pub fn in_file(self, file: impl fmt::Display) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        inner.file.get_or_insert_with(|| file.to_string());
        Error(Arc::new(inner))
    }

    /// The same error, placed in a file at an offset.
    #[must_use]
    pub fn at(self, file: impl fmt::Display, offset: u64) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        inner.file.get_or_insert_with(|| file.to_string());
        inner.offset.get_or_insert(offset);
        Error(Arc::new(inner))
    }

    /// The same error, caused by what a setting says.
    #[must_use]
    pub fn by_setting(self, name: &'static str) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        inner.setting.get_or_insert(name);
        Error(Arc::new(inner))
    }

    /// What to do next, in one word.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What happened, without place and advice.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The file concerned, if one is.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// The offset in that file, in bytes.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The setting, a method of the builder or of the engine's options, that would have to differ, if one is
    /// concerned.
    pub fn setting(&self) -> Option<&'static str> {
        self.0.setting
    }

    /// A sentence that says what to do.
    pub fn advice(&self) -> &'static str {
        match self.0.source.as_ref().map(|source| source.kind()) {
            Some(io::ErrorKind::PermissionDenied) => {
                "run it as the owner of the store's files, or ask the owner for access"
            }
            Some(io::ErrorKind::ReadOnlyFilesystem) => {
                "make the file system writable, or copy the store to one that is"
            }
            _ => self.0.kind.advice(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(file) = &self.0.file {
            write!(f, " (file {file}")?;
            if let Some(offset) = self.0.offset {
                write!(f, ", offset {offset}")?;
            }
            f.write_str(")")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        if let Some(setting) = self.0.setting {
            write!(f, " (setting `{setting}`)")?;
        }
        write!(f, "; {}", self.advice())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| &**e as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_and_what_to_do() {
        let e = Error::corrupted("000007.table", 4096, "block checksum differs: expected 1, got 2")
            .in_file("other");
        assert_eq!(e.kind(), ErrorKind::Corrupted);
        assert_eq!(e.file(), Some("000007.table"), "the innermost place wins");
        assert_eq!(
            e.to_string(),
            "block checksum differs: expected 1, got 2 (file 000007.table, offset 4096); \
             run `kvilt check` to see what is damaged; other key ranges stay readable"
        );
    }

    #[test]
    fn a_setting_stands_behind_the_message_and_apart_from_it() {
        let e = Error::invalid("there is no store").by_setting("create_if_missing");
        assert_eq!((e.message(), e.setting()), ("there is no store", Some("create_if_missing")));
        assert!(e.to_string().starts_with("there is no store (setting `create_if_missing`); "), "{e}");
    }

    #[test]
    fn who_may_not_read_or_write_is_told_what_to_do() {
        for (cause, advice) in
            [(io::ErrorKind::PermissionDenied, "owner"), (io::ErrorKind::ReadOnlyFilesystem, "writable")]
        {
            let e = Error::io("open the directory", io::Error::from(cause));
            assert!(e.kind() == ErrorKind::Io && e.to_string().contains(advice), "{e}");
        }
    }

    #[test]
    fn a_full_disk_is_its_own_kind() {
        let e = Error::io("append to a log", io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(e.kind(), ErrorKind::NoSpace);
        assert_eq!(Error::io("read", io::Error::from(io::ErrorKind::NotFound)).kind(), ErrorKind::Io);
    }
}
