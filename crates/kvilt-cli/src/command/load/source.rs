//! `Source`: the bytes of an input file or of standard input, decompressed if they are gzip, and counted.
//!
//! What is no regular file may keep a reader waiting for as long as it likes. It is read by a thread of its
//! own, so that Ctrl-C can wake who waits for it.

use std::{
    io::{self, BufRead, BufReader, Cursor, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, sync_channel},
    },
};

use flate2::bufread::MultiGzDecoder;

use crate::interrupt;

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
            return Source::new(Box::new(Awaited::new(io::stdin())), None);
        }
        #[expect(clippy::disallowed_types, reason = "the user's own input is no file of the store")]
        let file = std::fs::File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        // A pipe has no length worth showing.
        match metadata.is_file() {
            true => Source::new(Box::new(file), Some(metadata.len())),
            false => Source::new(Box::new(Awaited::new(file)), None),
        }
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
            let compressed = Compressed { input: plain, bytes_used: Arc::default() };
            let bytes_used = Arc::clone(&compressed.bytes_used);
            let decompressed = Decompressed { decoder: MultiGzDecoder::new(compressed), bytes_used };
            Box::new(BufReader::with_capacity(PIECE_BYTES, decompressed))
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

/// A compressed input, which counts what was used of it.
struct Compressed<R> {
    input: R,
    bytes_used: Arc<AtomicU64>,
}

impl<R: BufRead> Read for Compressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        // Relaxed: the thread that adds is the one that asks.
        self.bytes_used.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Compressed<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.bytes_used.fetch_add(count as u64, Ordering::Relaxed);
        self.input.consume(count);
    }
}

/// What comes out of it. An error that is none of the system's says that the input is damaged, and where.
struct Decompressed<R> {
    decoder: MultiGzDecoder<Compressed<R>>,
    bytes_used: Arc<AtomicU64>,
}

impl<R: BufRead> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| {
            if error.raw_os_error().is_some() || interrupt::is_pressed() {
                return error;
            }
            let at = self.bytes_used.load(Ordering::Relaxed);
            let message = format!(
                "the compressed input is damaged or cut short, at byte {at} of it or before ({error}); compress or fetch it again"
            );
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }
}

/// Pieces of an input that are read ahead of the parser, at most.
const PIECES_AHEAD: usize = 2;

/// An input that may let its reader wait.
struct Awaited {
    /// An empty one is the end.
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Cursor<Vec<u8>>,
    is_at_end: bool,
}

impl Awaited {
    /// The thread ends with the input, or when nobody wants its pieces any more, or with the process.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread that waits for the user's own input is none of the store's"
    )]
    fn new(mut input: impl Read + Send + 'static) -> Self {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let waker = sender.clone();
        // If there is no room for it, nobody waits.
        interrupt::wake_by(move || drop(waker.try_send(Err(cancelled()))));
        std::thread::spawn(move || {
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                let read = match input.read(&mut piece) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read,
                };
                let is_last = !matches!(read, Ok(1..));
                let piece = read.map(|count| {
                    piece.truncate(count);
                    piece
                });
                if sender.send(piece).is_err() || is_last {
                    return;
                }
            }
        });
        Awaited { pieces, piece: Cursor::default(), is_at_end: false }
    }
}

impl Read for Awaited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.read(buffer)?;
        if count > 0 || self.is_at_end || buffer.is_empty() {
            return Ok(count);
        }
        if interrupt::is_pressed() {
            return Err(cancelled());
        }
        let piece = self.pieces.recv().unwrap_or_else(|_| Ok(Vec::new()))?;
        self.is_at_end = piece.is_empty();
        self.piece = Cursor::new(piece);
        self.piece.read(buffer)
    }
}

/// Why an input is not read on when Ctrl-C was pressed. `Interrupted` would have it tried again.
fn cancelled() -> io::Error {
    io::Error::other("cancelled")
}
