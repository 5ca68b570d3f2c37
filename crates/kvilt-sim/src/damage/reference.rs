//! The store that is damaged: small, with every kind of file, and with known content.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kvilt_base::{Engine, FileName, KeyRange, Result};
use kvilt_even::options::{Compression, Durability};
use kvilt_format::{
    manifest::{read_manifest, read_root},
    names::{MANIFEST, RESERVE},
};
use kvilt_io::{Keep, MemoryDisk};

use crate::{
    dice::Dice,
    world::{Even, Subject, World},
};

/// A store's files at one moment, and what must be read from them.
pub struct Reference {
    /// How it is opened.
    pub subject: Even,
    /// Every file and what it holds.
    pub files: BTreeMap<FileName, Vec<u8>>,
    /// What files held earlier, other than now.
    pub older: BTreeMap<FileName, Vec<Vec<u8>>>,
    /// The rows that an open finds.
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Every key that there is or was, and some that never were.
    pub keys: BTreeSet<Vec<u8>>,
    /// How many bytes of each file were synced and count.
    synced: BTreeMap<FileName, u64>,
}

/// Which references there are: their number.
pub const REFERENCES: u64 = 2;

const KEYS: usize = 350;

impl Reference {
    /// A reference by its number: the first has plenty of tables, the second more logs.
    ///
    /// Its life: three runs, with and without compression; puts, deletes, range deletes, a snapshot held
    /// while both go on; splits, rewrites and evictions; checkpoints; a power cut that leaves torn tails
    /// behind synced logs.
    pub fn new(number: u64) -> Result<Reference> {
        let mut life = Life::new(number);
        life.run(Compression::None, 2 * KEYS)?;
        life.run(Compression::Lz4, KEYS)?;
        life.last_run()?;
        let Life { subject, disk, rows, keys, generations, .. } = life;
        let image = disk.crash_image(Keep::All);
        let mut files = image.snapshot();
        files.remove(&FileName::LOCK);
        // It has no bytes that matter.
        files.remove(&RESERVE);
        let mut older = generations;
        for (name, all) in &mut older {
            all.retain(|bytes| files.get(name) != Some(bytes));
        }
        older.retain(|name, all| files.contains_key(name) && !all.is_empty());
        let synced = synced_of(&image)?;
        Ok(Reference { subject, files, older, rows, keys, synced })
    }

    /// A disk with these files.
    pub fn disk(&self) -> Arc<MemoryDisk> {
        let disk = MemoryDisk::new(0);
        for (name, bytes) in &self.files {
            disk.replace(*name, bytes.clone());
        }
        disk
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// Whether a byte that was synced and counts is different on this disk, or missing.
    pub fn is_hurt(&self, disk: &MemoryDisk) -> bool {
        let now = disk.snapshot();
        self.synced.iter().any(|(name, &len)| {
            let good = &self.files[name][..len as usize];
            now.get(name).and_then(|bytes| bytes.get(..len as usize)) != Some(good)
        })
    }
}

/// What of a store's files counts. Of the witness nothing does: one bad half is taken for a torn write.
fn synced_of(disk: &MemoryDisk) -> Result<BTreeMap<FileName, u64>> {
    let (root, witness) = read_root(disk)?.expect("the reference is a store");
    let (_, number, _) = read_manifest(disk)?.expect("the reference has a manifest");
    assert_eq!(witness.claim().manifest, number, "the last checkpoint's claim is there");
    let mut synced = BTreeMap::from([(FileName::Of(MANIFEST, number), witness.claim().len)]);
    for (number, record) in &root.files {
        synced.insert(record.kind.name(*number), record.len);
    }
    Ok(synced)
}

/// The reference while it is being made.
struct Life {
    subject: Even,
    disk: Arc<MemoryDisk>,
    dice: Dice,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    keys: BTreeSet<Vec<u8>>,
    generations: BTreeMap<FileName, Vec<Vec<u8>>>,
}

impl Life {
    fn new(number: u64) -> Life {
        let mut subject = Even::tiny();
        let options = &mut subject.options;
        options.durability = Durability::Async { interval: Duration::from_millis(300) };
        options.chunk_bytes_max = 24 << 10;
        options.chunk_bytes_rebalance = 18 << 10;
        options.chunk_bytes_min = 2 << 10;
        options.log_bytes_max_cold = if number == 0 { 2 << 10 } else { 16 << 10 };
        options.log_bytes_max_cached = options.log_bytes_max_cold;
        options.log_bytes_max_unread = options.log_bytes_max_cold;
        options.block_bytes = 1 << 10;
        options.log_buffer_bytes_max = 256;
        // So little that chunks lose their munks, and files are read.
        subject.budget_bytes = 8 << 10;
        let keys = BTreeSet::from([b"".to_vec(), b"k".to_vec(), b"key00017+".to_vec(), b"zz".to_vec()]);
        Life {
            subject,
            disk: MemoryDisk::new(number),
            dice: Dice::new(number),
            rows: BTreeMap::new(),
            keys,
            generations: BTreeMap::new(),
        }
    }

    fn open(&mut self, compression: Compression) -> Result<(World, Arc<dyn Engine>)> {
        self.subject.options.compression = compression;
        let world = World::stepped(self.disk.clone(), self.disk.clone(), 1);
        let engine = self.subject.open(&world)?;
        Ok((world, engine))
    }

    fn run(&mut self, compression: Compression, writes: usize) -> Result<()> {
        let (world, engine) = self.open(compression)?;
        let mut view = None;
        for number in 0..writes {
            self.write(&*engine)?;
            if number % 60 == 0 {
                // Some versions must outlive what replaced them.
                view = engine.view().ok().filter(|_| view.is_none());
                self.rest(&world);
            }
        }
        drop(view);
        engine.close()
    }

    /// Ends in a power cut, behind a checkpoint and puts that it does not cover.
    fn last_run(&mut self) -> Result<()> {
        let (world, engine) = self.open(Compression::None)?;
        for _ in 0..KEYS / 4 {
            self.write(&*engine)?;
        }
        engine.sync()?;
        self.rest(&world);
        for _ in 0..KEYS / 8 {
            self.write(&*engine)?;
        }
        engine.sync()?;
        // Idle checkpoints: the witness's last claim is synced.
        self.rest(&world);
        let rows = self.rows.clone();
        // What the power cut makes a torn tail of.
        for _ in 0..KEYS / 8 {
            self.write(&*engine)?;
        }
        self.rows = rows;
        self.disk.set_crash_at(Some(0));
        Ok(())
    }

    fn write(&mut self, engine: &dyn Engine) -> Result<()> {
        let key = format!("key{:05}", self.dice.below(KEYS) * 3).into_bytes();
        self.keys.insert(key.clone());
        match self.dice.below(40) {
            0 => {
                let range = KeyRange { start: key.clone(), end: Some([&key[..7], b"9"].concat()) };
                engine.delete_range(&range)?;
                self.rows.retain(|key, _| !range.contains(key));
            }
            1..5 => {
                engine.delete(&key)?;
                self.rows.remove(&key);
            }
            _ => {
                let mut value = vec![0; self.dice.between(20, 320)];
                let letters = self.dice.number();
                for (i, byte) in value.iter_mut().enumerate() {
                    // Half of it repeats, so that compression has something to do.
                    *byte = if i % 16 < 8 { b'.' } else { (letters >> (i % 56)) as u8 };
                }
                engine.put(&key, &value)?;
                self.rows.insert(key, value);
            }
        }
        Ok(())
    }

    fn rest(&mut self, world: &World) {
        for _ in 0..2 {
            world.advance(400);
            world.step_until_idle().expect("workers of a sound store come to rest");
        }
        for (name, bytes) in self.disk.snapshot() {
            let all = self.generations.entry(name).or_default();
            if all.last() != Some(&bytes) {
                all.push(bytes);
            }
        }
    }
}
