//! `Source`: the bytes of an input file or of standard input, decompressed if they are gzip, and counted.

use std::{
    io::{self, BufRead, BufReader, Cursor, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::bufread::MultiGzDecoder;

/// Input is read in pieces of this many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// What every gzip file begins with.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// What other compressed files begin with: they are refused by name, for rows they have none.
const OTHER_MAGICS: [(&[u8], &str); 5] = [
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh91AY&SY", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
];

/// So many bytes tell which of these an input is.
const MAGIC_BYTES_MAX: usize = 10;

/// How much of an input was read, and how much there is: both before decompression.
pub(super) struct Source {
    bytes_read: Arc<AtomicU64>,
    bytes_in_all: Option<u64>,
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> io::Result<(Source, Box<dyn BufRead>)> {
        if path == Path::new("-") {
            return Source::new(Box::new(io::stdin().lock()), None);
        }
        #[expect(clippy::disallowed_types, reason = "the user's own input is no file of the store")]
        let file = std::fs::File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        // A pipe has no length worth showing.
        let bytes_in_all = metadata.is_file().then_some(metadata.len());
        Source::new(Box::new(file), bytes_in_all)
    }

    fn new(input: Box<dyn Read>, bytes_in_all: Option<u64>) -> io::Result<(Source, Box<dyn BufRead>)> {
        let bytes_read = Arc::new(AtomicU64::new(0));
        let mut counted = Counted { input, bytes_read: Arc::clone(&bytes_read) };
        let mut first = Vec::new();
        counted.by_ref().take(MAGIC_BYTES_MAX as u64).read_to_end(&mut first)?;
        if let Some((_, name)) = OTHER_MAGICS.iter().find(|(magic, _)| first.starts_with(magic)) {
            let message = format!("it is compressed with {name}; decompress it first, or use gzip");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let is_gzip = first.starts_with(GZIP_MAGIC);
        let plain = BufReader::with_capacity(PIECE_BYTES, Cursor::new(first).chain(counted));
        let reader: Box<dyn BufRead> = if is_gzip {
            Box::new(BufReader::with_capacity(PIECE_BYTES, MultiGzDecoder::new(plain)))
        } else {
            Box::new(plain)
        };
        Ok((Source { bytes_read, bytes_in_all }, reader))
    }

    pub(super) fn bytes_read(&self) -> u64 {
        // Relaxed: for the progress bar only.
        self.bytes_read.load(Ordering::Relaxed)
    }

    pub(super) fn bytes_in_all(&self) -> Option<u64> {
        self.bytes_in_all
    }
}

struct Counted {
    input: Box<dyn Read>,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
