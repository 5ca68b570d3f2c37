//! The store that is damaged: small, with every kind of file, and with known content.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use kvilt_base::{Engine, FileName, KeyRange, Result};
use kvilt_io::{Keep, MemoryDisk};

use crate::{
    dice::Dice,
    subject::{LastEnd, Recipe, Subject},
    world::World,
};

/// A store's files at one moment, and what must be read from them.
pub struct Reference {
    /// How it is opened.
    pub subject: Box<dyn Subject>,
    /// Every file and what it holds.
    pub files: BTreeMap<FileName, Vec<u8>>,
    /// What files held earlier, other than now.
    pub older: BTreeMap<FileName, Vec<Vec<u8>>>,
    /// The rows that an open finds.
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Every key that there is or was, and some that never were.
    pub keys: BTreeSet<Vec<u8>>,
    /// Which bytes of each file were synced and count.
    synced: BTreeMap<FileName, Vec<Range<u64>>>,
}

const KEYS: usize = 350;

impl Reference {
    /// A reference, by the number of its recipe.
    ///
    /// Its life: some runs, opened as the recipe says; puts, deletes, range deletes, a snapshot held while
    /// both go on; checkpoints; at last a close, or a power cut that leaves torn tails behind what was
    /// synced.
    pub fn new(mut recipes: Vec<Recipe>, number: u64) -> Result<Reference> {
        let recipe = recipes.swap_remove(number as usize);
        let Recipe { earlier, last, end, synced, is_unfound_when_older } = recipe;
        let mut life = Life::new(number);
        for (run, subject) in earlier.iter().enumerate() {
            life.run(&**subject, if run == 0 { 2 * KEYS } else { KEYS })?;
        }
        life.last_run(&*last, end)?;
        let Life { disk, rows, keys, generations, .. } = life;
        let image = disk.crash_image(Keep::All);
        let mut files = image.snapshot();
        files.retain(|name, _| !last.is_beside(*name));
        let mut older = generations;
        for (name, all) in &mut older {
            all.retain(|bytes| files.get(name) != Some(bytes));
        }
        let is_found = |name: FileName| files.contains_key(&name) && !is_unfound_when_older(name);
        older.retain(|name, all| is_found(*name) && !all.is_empty());
        let synced = synced(&image)?;
        Ok(Reference { subject: last, files, older, rows, keys, synced })
    }

    /// A disk with these files, of a machine that was started again.
    pub fn disk(&self) -> Arc<MemoryDisk> {
        let disk = MemoryDisk::new(0).crash_image(Keep::All);
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
        self.synced.iter().any(|(name, ranges)| {
            ranges.iter().map(|range| range.start as usize..range.end as usize).any(|range| {
                let good = &self.files[name][range.clone()];
                now.get(name).and_then(|bytes| bytes.get(range)) != Some(good)
            })
        })
    }
}

/// The reference while it is being made.
struct Life {
    disk: Arc<MemoryDisk>,
    dice: Dice,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    keys: BTreeSet<Vec<u8>>,
    generations: BTreeMap<FileName, Vec<Vec<u8>>>,
}

impl Life {
    fn new(number: u64) -> Life {
        let keys = BTreeSet::from([b"".to_vec(), b"k".to_vec(), b"key00017+".to_vec(), b"zz".to_vec()]);
        Life {
            disk: MemoryDisk::new(number),
            dice: Dice::new(number),
            rows: BTreeMap::new(),
            keys,
            generations: BTreeMap::new(),
        }
    }

    fn open(&self, subject: &dyn Subject) -> Result<(World, Arc<dyn Engine>)> {
        let world = World::stepped(self.disk.clone(), self.disk.clone(), 1);
        let engine = subject.open(&world)?;
        Ok((world, engine))
    }

    fn run(&mut self, subject: &dyn Subject, writes: usize) -> Result<()> {
        let (world, engine) = self.open(subject)?;
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
        engine.close()?;
        self.note_files();
        Ok(())
    }

    /// Ends in a close, or in a power cut, behind a checkpoint and puts that it does not cover.
    fn last_run(&mut self, subject: &dyn Subject, end: LastEnd) -> Result<()> {
        let (world, engine) = self.open(subject)?;
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
        if end == LastEnd::Close {
            return engine.close();
        }
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
        self.note_files();
    }

    /// What the files hold now may be all that is left of them later.
    fn note_files(&mut self) {
        for (name, bytes) in self.disk.snapshot() {
            let all = self.generations.entry(name).or_default();
            if all.last() != Some(&bytes) {
                all.push(bytes);
            }
        }
    }
}
