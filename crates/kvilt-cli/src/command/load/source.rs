//! `Source`: the bytes of an input file or of standard input, decompressed if they are gzip, and counted.

use std::{
    io::{self, BufRead, BufReader, Read},
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
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

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
        let counted = Counted { input, bytes_read: Arc::clone(&bytes_read) };
        let mut plain = BufReader::with_capacity(PIECE_BYTES, counted);
        let is_gzip = starts_with_magic(&mut plain)?;
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

/// Looks at the first bytes without consuming them. A pipe that gives them one by one is taken for plain.
fn starts_with_magic(input: &mut impl BufRead) -> io::Result<bool> {
    Ok(input.fill_buf()?.starts_with(&GZIP_MAGIC))
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
