//! The least HTTP/1.1 that talks to our daemon over its Unix socket, on a kept connection. The command line has a client
//! with more manners; this one is what is timed, so it does nothing but write the request and read the answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::{BenchError, io_on};

#[derive(Debug)]
pub(crate) struct Connection {
    reader: BufReader<UnixStream>,
}

/// How long the body is: so many bytes, or chunks until an empty one.
enum Framing {
    Length(usize),
    Chunked,
}

impl Connection {
    pub(crate) fn open(socket: &Path) -> Result<Self, BenchError> {
        let stream = UnixStream::connect(socket).map_err(io_on(socket.display()))?;
        Ok(Self {
            reader: BufReader::new(stream),
        })
    }

    /// One request and its whole answer; an answer that is not a success is an error with the daemon's words.
    pub(crate) fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, BenchError> {
        self.send(method, path, body)?;
        let (status, framing) = self.head()?;
        let mut answer = Vec::new();
        match framing {
            Framing::Length(len) => {
                answer.resize(len, 0);
                self.reader.read_exact(&mut answer).map_err(lost)?;
            }
            Framing::Chunked => while self.chunk(&mut answer)? {},
        }
        if status >= 300 {
            let request = format!("{method} {path}");
            return Err(match serde_json::from_slice(&answer) {
                Ok(problem) => BenchError::Refused { request, problem },
                Err(_) => {
                    let said = String::from_utf8_lossy(&answer);
                    BenchError::Daemon(format!("{request}: {status}: {said}"))
                }
            });
        }
        Ok(answer)
    }

    /// The same for an answer that is JSON.
    pub(crate) fn json<T: DeserializeOwned>(&mut self, method: &str, path: &str, body: &[u8]) -> Result<T, BenchError> {
        let answer = self.call(method, path, body)?;
        parse(&answer)
    }

    /// Turns the connection into a stream of JSON lines.
    pub(crate) fn stream(mut self, path: &str) -> Result<Lines, BenchError> {
        self.send("GET", path, &[])?;
        match self.head()? {
            (200, Framing::Chunked) => Ok(Lines {
                connection: self,
                waiting: Vec::new(),
            }),
            (status, _) => Err(BenchError::Daemon(format!("GET {path}: {status} instead of a stream"))),
        }
    }

    fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(), BenchError> {
        let version = format!("{}: {}", api::VERSION_HEADER, api::VERSION);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: deltabox\r\n{version}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        self.reader
            .get_mut()
            .write_all(&[head.as_bytes(), body].concat())
            .map_err(lost)
    }

    fn head(&mut self) -> Result<(u16, Framing), BenchError> {
        let mut status = 0;
        let mut framing = Framing::Length(0);
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).map_err(lost)? == 0 {
                return Err(BenchError::Daemon("it closed the connection".to_owned()));
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                return Ok((status, framing));
            }
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest
                    .split(' ')
                    .next()
                    .and_then(|code| code.parse().ok())
                    .unwrap_or_default();
            } else if let Some(len) = line.strip_prefix("content-length:") {
                framing = Framing::Length(len.trim().parse().unwrap_or_default());
            } else if line.starts_with("transfer-encoding:") {
                framing = Framing::Chunked;
            }
        }
    }

    /// Appends the next chunk; false at the last, empty one.
    fn chunk(&mut self, body: &mut Vec<u8>) -> Result<bool, BenchError> {
        let mut line = String::new();
        self.reader.read_line(&mut line).map_err(lost)?;
        let len = usize::from_str_radix(line.trim(), 16);
        let len = len.map_err(|_| BenchError::Daemon(format!("{line:?} is not the size of a chunk")))?;
        let start = body.len();
        body.resize(start + len + 2, 0);
        self.reader.read_exact(&mut body[start..]).map_err(lost)?;
        body.truncate(start + len);
        Ok(len > 0)
    }
}

/// JSON values, one a line, as they arrive.
#[derive(Debug)]
pub(crate) struct Lines {
    connection: Connection,
    waiting: Vec<u8>,
}

impl Lines {
    /// The next value; `None` at the end.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, BenchError> {
        loop {
            if let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.waiting.drain(..=end).collect();
                return parse(&line).map(Some);
            }
            if !self.connection.chunk(&mut self.waiting)? {
                return Ok(None);
            }
        }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, BenchError> {
    let text = || String::from_utf8_lossy(body).into_owned();
    serde_json::from_slice(body).map_err(|error| BenchError::Daemon(format!("{error} in {:?}", text())))
}

fn lost(error: std::io::Error) -> BenchError {
    BenchError::Daemon(format!("connection lost: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose other end answers `text` to whatever is sent.
    fn answered(text: &'static str) -> Connection {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(text.as_bytes()).unwrap();
        std::thread::spawn(move || std::io::copy(&mut theirs, &mut std::io::sink()));
        Connection {
            reader: BufReader::new(ours),
        }
    }

    #[test]
    fn answers_with_a_length() {
        let text = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n[]HTTP/1.1 204 No Content\r\n\r\n";
        let mut connection = answered(text);
        assert_eq!(connection.call("POST", "/", b"{}").unwrap(), b"[]");
        assert_eq!(connection.call("POST", "/", b"{}").unwrap(), b"");
    }

    #[test]
    fn streams_of_chunks() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n1\n2\r\n2\r\n3\n\r\n0\r\n\r\n";
        let mut lines = answered(text).stream("/").unwrap();
        assert_eq!(lines.next::<u32>().unwrap(), Some(1));
        assert_eq!(lines.next::<u32>().unwrap(), Some(23));
        assert_eq!(lines.next::<u32>().unwrap(), None);
    }

    #[test]
    fn refusals_are_errors() {
        let mut connection = answered("HTTP/1.1 409 Conflict\r\ncontent-length: 4\r\n\r\nbusy");
        let error = connection.call("POST", "/x", b"").unwrap_err().to_string();
        assert!(error.contains("409") && error.contains("busy"), "{error}");
    }

    #[test]
    fn problems_are_refusals() {
        let mut connection = answered(concat!(
            "HTTP/1.1 409 Conflict\r\ncontent-length: 75\r\n\r\n",
            r#"{"title":"busy","status":409,"code":"busy","detail":"pid 7 does not stop" }"#
        ));
        let error = connection.call("POST", "/x", b"").unwrap_err();
        assert!(matches!(&error, BenchError::Refused { problem, .. } if problem.code == api::Code::Busy));
        assert_eq!(error.to_string(), "the daemon: POST /x: busy: pid 7 does not stop");
    }
}
