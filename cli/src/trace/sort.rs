// SPDX-License-Identifier: Apache-2.0
//! Sorts lines by time in bounded memory: in parts that fit into memory, each sorted and written to a temporary file, and merged
//! from there. What fits into memory touches no disk.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write as _};
use std::rc::Rc;

use weir::time::Micros;

/// The memory of a part, and that of all readers together while parts are merged, in bytes.
const BUDGET: usize = 32 << 20;

/// The memory of one reader at least and at most.
const READER: (usize, usize) = (4 << 10, 256 << 10);

/// The time of a line, and its number, which decides between lines of the same time.
pub type Key = (Micros, u64);

/// Where a line is in a part.
pub struct Entry {
    key: Key,
    from: usize,
    length: usize,
}

/// Takes lines in any order.
pub struct Sorter {
    budget: usize,
    text: Vec<u8>,
    entries: Vec<Entry>,
    /// The temporary file, and where each part ends in it.
    file: Option<(File, Vec<u64>)>,
}

impl Default for Sorter {
    fn default() -> Self {
        Self::with_budget(BUDGET)
    }
}

impl Sorter {
    fn with_budget(budget: usize) -> Self {
        Self { budget, text: Vec::new(), entries: Vec::new(), file: None }
    }

    /// Takes a line.
    ///
    /// # Errors
    /// The temporary file cannot be written.
    pub fn push(&mut self, key: Key, line: &[u8]) -> io::Result<()> {
        let entries = self.entries.len().saturating_mul(size_of::<Entry>());
        if self.text.len().saturating_add(entries).saturating_add(line.len()) > self.budget {
            self.write_part()?;
        }
        self.entries.push(Entry { key, from: self.text.len(), length: line.len() });
        self.text.extend_from_slice(line);
        Ok(())
    }

    fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|entry| entry.key);
    }

    fn write_part(&mut self) -> io::Result<()> {
        self.sort();
        let (file, ends) = match &mut self.file {
            Some(file) => file,
            none => none.insert((tempfile::tempfile()?, Vec::new())),
        };
        let mut out = BufWriter::with_capacity(1 << 18, &*file);
        let mut end = ends.last().copied().unwrap_or(0);
        for Entry { key: (at, number), from, length } in self.entries.drain(..) {
            let line = self.text.get(from..from.saturating_add(length)).unwrap_or_default();
            let length = u32::try_from(line.len()).map_err(io::Error::other)?;
            out.write_all(&at.0.to_le_bytes())?;
            out.write_all(&number.to_le_bytes())?;
            out.write_all(&length.to_le_bytes())?;
            out.write_all(line)?;
            end = end.saturating_add(HEAD).saturating_add(length.into());
        }
        out.flush()?;
        drop(out);
        ends.push(end);
        self.text.clear();
        Ok(())
    }

    /// The lines in order.
    ///
    /// # Errors
    /// The temporary file cannot be written or read.
    pub fn sorted(mut self) -> io::Result<Sorted> {
        let Some((file, _)) = &self.file else {
            self.sort();
            return Ok(Sorted::Memory { text: self.text, entries: self.entries.into_iter() });
        };
        let file = file.try_clone()?;
        self.write_part()?;
        let Some((_, ends)) = self.file else { return Err(io::Error::other("no temporary file")) };
        let capacity = BUDGET.checked_div(ends.len()).unwrap_or(BUDGET).clamp(READER.0, READER.1);
        let file = Rc::new(file);
        let (mut parts, mut next, mut at) = (Vec::new(), BinaryHeap::new(), 0);
        for end in ends {
            let section = Section { file: Rc::clone(&file), at, end };
            let mut part = BufReader::with_capacity(capacity, section);
            if let Some(key) = key(&mut part)? {
                next.push(Reverse((key, parts.len())));
            }
            parts.push(part);
            at = end;
        }
        Ok(Sorted::Parts { parts, next })
    }
}

/// The bytes before a line in the temporary file: its time, its number, its length.
const HEAD: u64 = 8 + 8 + 4;

/// Lines in order.
pub enum Sorted {
    /// All of them are in memory.
    Memory { text: Vec<u8>, entries: std::vec::IntoIter<Entry> },
    /// They are in parts, each in order, and `next` has the first line of each that is not read.
    Parts { parts: Vec<BufReader<Section>>, next: BinaryHeap<Reverse<(Key, usize)>> },
}

impl Sorted {
    /// Reads the next line into `line`.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Key>> {
        line.clear();
        match self {
            Self::Memory { text, entries } => {
                let Some(Entry { key, from, length }) = entries.next() else { return Ok(None) };
                line.extend_from_slice(text.get(from..from.saturating_add(length)).unwrap_or_default());
                Ok(Some(key))
            }
            Self::Parts { parts, next } => {
                let Some(Reverse((found, place))) = next.pop() else { return Ok(None) };
                let Some(part) = parts.get_mut(place) else { return Ok(None) };
                let length = u32::from_le_bytes(array(part)?);
                part.take(length.into()).read_to_end(line)?;
                if let Some(key) = key(part)? {
                    next.push(Reverse((key, place)));
                }
                Ok(Some(found))
            }
        }
    }
}

/// The key of the next line of a part.
fn key(part: &mut BufReader<Section>) -> io::Result<Option<Key>> {
    if part.fill_buf()?.is_empty() {
        return Ok(None);
    }
    Ok(Some((Micros(u64::from_le_bytes(array(part)?)), u64::from_le_bytes(array(part)?))))
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map(|()| bytes)
}

/// A part of a file.
pub struct Section {
    file: Rc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let length = left.min(buffer.len());
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(buffer.get_mut(..length).unwrap_or_default())?;
        self.at = self.at.saturating_add(u64::try_from(read).unwrap_or(0));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times that repeat, in an order that looks like none; lines of all lengths, one of them longer than the budget.
    fn sorted(count: u64, budget: usize) -> (Vec<(Key, Vec<u8>)>, usize) {
        let mut sorter = Sorter::with_budget(budget);
        for number in 0..count {
            let length = if number == 5 { 5_000 } else { usize::try_from(number % 50).unwrap() };
            sorter.push((Micros(number * 7_919 % 100), number), &vec![b'a'; length]).unwrap();
        }
        let parts = sorter.file.as_ref().map_or(0, |(_, ends)| ends.len());
        let (mut sorted, mut all, mut line) = (sorter.sorted().unwrap(), Vec::new(), Vec::new());
        while let Some(key) = sorted.next(&mut line).unwrap() {
            all.push((key, line.clone()));
        }
        (all, parts)
    }

    #[test]
    fn parts_are_merged_to_what_memory_alone_gives() {
        let (in_memory, none) = sorted(1_000, BUDGET);
        assert!(in_memory.is_sorted_by_key(|(key, _)| *key) && in_memory.len() == 1_000 && none == 0);
        let (merged, parts) = sorted(1_000, 1_000);
        assert!(parts > 20, "{parts}");
        assert!(merged == in_memory);
        assert!(sorted(0, 1_000).0.is_empty());
    }
}
