// SPDX-License-Identifier: Apache-2.0
//! The lines of a trace: of bounded length, without their ends and without a byte order mark.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::{Failure, words};

/// The longest line that is read, in bytes. Envoy's longest request line and headers are far shorter.
pub const LONGEST: usize = 1 << 20;

/// The number of bytes of a stream that are kept in memory; beyond that, it is kept in a temporary file.
const KEPT: usize = 8 << 20;

/// An input that is read twice: a file, or a stream and a copy of it.
struct Twice {
    stream: Option<Box<dyn Read>>,
    file: Box<dyn Seekable>,
}

trait Seekable: Read + Write + Seek {}

impl<T: Read + Write + Seek> Seekable for T {}

impl Twice {
    fn stream(stream: impl Read + 'static) -> Self {
        Self { stream: Some(Box::new(stream)), file: Box::new(tempfile::spooled_tempfile(KEPT)) }
    }
}

impl Read for Twice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(stream) = &mut self.stream else { return self.file.read(buffer) };
        let read = stream.read(buffer)?;
        let written = self.file.write_all(buffer.get(..read).unwrap_or_default());
        let named = |error| io::Error::other(format!("keeping it in a temporary file: {error}"));
        written.map(|()| read).map_err(named)
    }
}

impl Seek for Twice {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.stream = None;
        self.file.seek(to)
    }
}

/// The lines of a file, or of the standard input.
pub struct Lines {
    input: BufReader<Twice>,
    name: String,
    /// The number of bytes, if that is known.
    pub size: Option<u64>,
    pub read: u64,
    /// The number of the last line, from 1.
    pub number: u64,
    /// True if the last line has its end. The last line of a log that is being written may have none.
    pub is_whole: bool,
}

impl Lines {
    /// Opens the file at this path; `-` is the standard input.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            let input = BufReader::new(Twice::stream(io::stdin()));
            return Self::new(input, String::from("the standard input"), None);
        }
        let name = words::file(path);
        let named = |error: io::Error| format!("{name}: {error}");
        let file = File::open(path).map_err(named)?;
        let about = file.metadata().map_err(named)?;
        if about.is_dir() {
            return Err(format!("{name}: it is a directory, allowed: a file, or - for the standard input"));
        }
        let size = about.is_file().then_some(about.len());
        let input = match size {
            Some(_) => Twice { stream: None, file: Box::new(file) },
            None => Twice::stream(file),
        };
        Self::new(BufReader::with_capacity(1 << 16, input), name, size)
    }

    /// The lines of `text`, as if it were the file of this name.
    pub fn of(name: &str, text: Vec<u8>) -> Result<Self, Failure> {
        let size = u64::try_from(text.len()).ok();
        let input = Twice { stream: None, file: Box::new(Cursor::new(text)) };
        Self::new(BufReader::new(input), words::printable(name), size)
    }

    /// The lines of `input`, which messages call `name`.
    fn new(input: BufReader<Twice>, name: String, size: Option<u64>) -> Result<Self, Failure> {
        let mut lines = Self { input, name, size, read: 0, number: 0, is_whole: true };
        lines.begin()?;
        Ok(lines)
    }

    pub fn rewind(&mut self) -> Result<(), Failure> {
        self.input.rewind().map_err(|error| format!("{}: {error}", self.name))?;
        (self.read, self.number) = (0, 0);
        self.begin()
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let start = self.input.fill_buf().map_err(|error| format!("{}: {error}", self.name))?;
        let found = match start {
            [0x1f, 0x8b, ..] => {
                "it is compressed (gzip), allowed: text; `zcat FILE | weir replay CONFIG -` reads it"
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                "it is compressed (zstd), allowed: text; `zstdcat FILE | weir replay CONFIG -` reads it"
            }
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it is UTF-16, allowed: UTF-8",
            _ => "",
        };
        if !found.is_empty() {
            return Err(format!("{}: {found}", self.name));
        }
        if start.starts_with(b"\xef\xbb\xbf") {
            self.input.consume(3);
            self.read = 3;
        }
        Ok(())
    }

    /// Reads the next line into `line`. Returns whether there is one. Of a line longer than [`LONGEST`], `line` has one byte more
    /// than that.
    pub fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, Failure> {
        line.clear();
        let most = u64::try_from(LONGEST).unwrap_or(u64::MAX).saturating_add(1);
        let read = self
            .input
            .by_ref()
            .take(most)
            .read_until(b'\n', line)
            .map_err(|error| format!("{}: {error}", self.name))?;
        self.read = self.read.saturating_add(u64::try_from(read).unwrap_or(0));
        if read == 0 {
            return Ok(false);
        }
        self.number = self.number.saturating_add(1);
        self.is_whole = line.last() == Some(&b'\n');
        if line.len() > LONGEST && !self.is_whole {
            self.skip_rest().map_err(|error| format!("{}: {error}", self.name))?;
            self.is_whole = true;
            return Ok(true);
        }
        if self.is_whole {
            line.pop();
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(true)
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        loop {
            let chunk = self.input.fill_buf()?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(chunk.len(), |end| end.saturating_add(1));
            let is_end = end.is_some() || chunk.is_empty();
            self.input.consume(length);
            self.read = self.read.saturating_add(u64::try_from(length).unwrap_or(0));
            if is_end {
                return Ok(());
            }
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &'static [u8]) -> Result<Vec<(Vec<u8>, bool)>, Failure> {
        let input = BufReader::with_capacity(7, Twice::stream(bytes));
        let mut lines = Lines::new(input, String::from("it"), None)?;
        let mut read = || {
            let (mut all, mut line) = (Vec::new(), Vec::new());
            while lines.next(&mut line)? {
                all.push((line.clone(), lines.is_whole));
            }
            assert_eq!(lines.read, u64::try_from(bytes.len()).unwrap());
            lines.rewind()?;
            Ok::<_, Failure>(all)
        };
        let all = read()?;
        assert!(all == read()?, "it is read twice");
        Ok(all)
    }

    #[test]
    fn lines_have_no_ends_and_no_mark() {
        let rows: [(&[u8], &[(&[u8], bool)]); 6] = [
            (b"", &[]),
            (b"\n\n", &[(b"", true), (b"", true)]),
            (b"\xef\xbb\xbfa\r\nb\n", &[(b"a", true), (b"b", true)]),
            (b"a\nb\xff", &[(b"a", true), (b"b\xff", false)]),
            (b"a\rb\n", &[(b"a\rb", true)]),
            (b"\xef\xbb\xbf", &[]),
        ];
        for (bytes, wanted) in rows {
            let wanted: Vec<_> = wanted.iter().map(|(line, whole)| (line.to_vec(), *whole)).collect();
            assert_eq!(lines(bytes).unwrap(), wanted, "{}", bytes.escape_ascii());
        }
        assert!(lines(b"\x1f\x8b\x08").unwrap_err().contains("zcat"));
        assert!(lines(b"\xff\xfea\0").unwrap_err().contains("UTF-16"));
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let long = [b"a\n".to_vec(), vec![b'x'; 3 * LONGEST], b"\nb\n".to_vec()].concat();
        let found = lines(Vec::leak(long)).unwrap();
        let lengths: Vec<_> = found.iter().map(|(line, whole)| (line.len(), *whole)).collect();
        assert_eq!(lengths, [(1, true), (LONGEST + 1, true), (1, true)]);
    }
}
