//! HTTP/1.1 to the daemon over its Unix socket, blocking. Written by hand on purpose: starting an async runtime costs a
//! short-lived command line more than its call does. It speaks only what our daemon answers: a length or chunks.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use api::{BUILD_HEADER, Code, Problem, VERSION, VERSION_HEADER};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::build_id;
use crate::error::{CliError, Result};
use crate::output::Output;

/// Longest line of an answer's head.
const HEAD_LINE_BYTES_MAX: u64 = 64 << 10;

/// One kept-alive connection.
#[derive(Debug)]
pub(crate) struct Client {
    reader: BufReader<UnixStream>,
    /// What the first answer is compared with.
    own_build: Option<OwnBuild>,
}

/// Our build, and where to say that the daemon's is another.
#[derive(Debug)]
struct OwnBuild {
    build: String,
    output: Output,
}

/// What to send.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload<'a> {
    /// Nothing.
    Nothing,
    /// JSON text.
    Json(&'a [u8]),
    /// Bytes as they are.
    Bytes(&'a [u8]),
}

#[derive(Debug)]
struct Head {
    status: u16,
    version: Option<String>,
    build: Option<String>,
    body: BodyKind,
}

#[derive(Debug, Clone, Copy)]
enum BodyKind {
    Length(u64),
    Chunked,
}

impl Client {
    /// Over a connected stream.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, stream),
            own_build: None,
        }
    }

    /// Says so once, and goes on, when the daemon is another build of our version.
    pub(crate) fn warns_of_another_build(mut self, output: &Output) -> Self {
        // A program that may be run but not read does not know its build, and cannot tell.
        self.own_build = build_id::own().ok().map(|build| OwnBuild { build, output: *output });
        self
    }

    /// `GET` of JSON.
    pub(crate) fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        let body = self.call("GET", path, Payload::Nothing)?;
        parse(&body)
    }

    /// The daemon's version, whatever it is: the one call that does not mind another.
    pub(crate) fn version(&mut self) -> Result<api::Version> {
        self.send("GET", "/v1/version", Payload::Nothing)?;
        let head = self.head()?;
        let mut text = Vec::new();
        let mut body = Body {
            reader: &mut self.reader,
            kind: head.body,
            chunk_left: 0,
            over: false,
        };
        body.read_to_end(&mut text).map_err(|error| lost(&error))?;
        parse(&text)
    }

    /// `POST` of JSON, for JSON.
    pub(crate) fn post<T: DeserializeOwned>(&mut self, path: &str, value: &impl Serialize) -> Result<T> {
        let body = self.call("POST", path, Payload::Json(&json(value)))?;
        parse(&body)
    }

    /// `POST` of JSON, for nothing.
    pub(crate) fn post_done(&mut self, path: &str, value: &impl Serialize) -> Result<()> {
        self.call("POST", path, Payload::Json(&json(value))).map(drop)
    }

    /// `DELETE`.
    pub(crate) fn delete(&mut self, path: &str) -> Result<()> {
        self.call("DELETE", path, Payload::Nothing).map(drop)
    }

    /// One request and its whole answer; an error status becomes an error.
    pub(crate) fn call(&mut self, method: &str, path: &str, payload: Payload<'_>) -> Result<Vec<u8>> {
        self.send(method, path, payload)?;
        let head = self.head()?;
        let mut body = Vec::new();
        Body {
            reader: &mut self.reader,
            kind: head.body,
            chunk_left: 0,
            over: false,
        }
        .read_to_end(&mut body)
        .map_err(|error| lost(&error))?;
        check(&head, &body)?;
        Ok(body)
    }

    /// `GET` of a stream of JSON lines. The connection belongs to the stream.
    pub(crate) fn stream(mut self, path: &str) -> Result<Lines> {
        self.send("GET", path, Payload::Nothing)?;
        let head = self.head()?;
        let mut body = Body {
            reader: self.reader,
            kind: head.body,
            chunk_left: 0,
            over: false,
        };
        if head.status >= 300 {
            let mut text = Vec::new();
            body.read_to_end(&mut text).map_err(|error| lost(&error))?;
            check(&head, &text)?;
        }
        Ok(Lines {
            body: BufReader::with_capacity(64 << 10, body),
            line: Vec::new(),
        })
    }

    /// Another handle of the connection, to end it from another thread.
    pub(crate) fn handle(&self) -> Result<UnixStream> {
        self.reader.get_ref().try_clone().map_err(|error| lost(&error))
    }

    fn send(&mut self, method: &str, path: &str, payload: Payload<'_>) -> Result<()> {
        let (kind, bytes) = match payload {
            Payload::Nothing => ("", &[][..]),
            Payload::Json(bytes) => ("content-type: application/json\r\n", bytes),
            Payload::Bytes(bytes) => ("content-type: application/octet-stream\r\n", bytes),
        };
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: deltabox\r\n{VERSION_HEADER}: {VERSION}\r\n{kind}content-length: {}\r\n\r\n",
            bytes.len()
        )
        .into_bytes();
        let mut stream = self.reader.get_ref();
        let sent = if bytes.len() <= 64 << 10 {
            request.extend_from_slice(bytes);
            stream.write_all(&request)
        } else {
            stream.write_all(&request).and_then(|()| stream.write_all(bytes))
        };
        match sent {
            // The daemon may have answered (too large, other version) and closed: its answer says more.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|error| lost(&error)),
        }
    }

    fn head(&mut self) -> Result<Head> {
        let status_line = self.head_line()?;
        let status = status_line.split(' ').nth(1).and_then(|text| text.parse().ok());
        let status = status.ok_or_else(|| not_ours(&status_line))?;
        let mut head = Head {
            status,
            version: None,
            build: None,
            body: BodyKind::Length(0),
        };
        loop {
            let line = self.head_line()?;
            if line.is_empty() {
                self.compare_build(&head);
                return Ok(head);
            }
            let (name, value) = line.split_once(':').ok_or_else(|| not_ours(&line))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.body = BodyKind::Length(value.parse().map_err(|_| not_ours(&line))?),
                "transfer-encoding" => head.body = BodyKind::Chunked,
                VERSION_HEADER => head.version = Some(value.to_owned()),
                BUILD_HEADER => head.build = Some(value.to_owned()),
                _ => {}
            }
        }
    }

    fn compare_build(&mut self, head: &Head) {
        let Some(OwnBuild { build: ours, output }) = self.own_build.take() else {
            return;
        };
        let theirs = head.build.as_deref().unwrap_or("unknown");
        // Another version is an error of its own.
        if head.version.as_deref() == Some(VERSION) && theirs != ours {
            let (text, hint) = other_build(theirs, &ours);
            output.warning(&text, &hint);
        }
    }

    fn head_line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        let read = (&mut self.reader)
            .take(HEAD_LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        read.map_err(|error| lost(&error))?;
        if line.pop() != Some(b'\n') {
            return Err(lost(&std::io::ErrorKind::UnexpectedEof.into()));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

/// An answer's body, without its framing.
#[derive(Debug)]
struct Body<R> {
    reader: R,
    kind: BodyKind,
    chunk_left: u64,
    over: bool,
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.over || buffer.is_empty() {
            return Ok(0);
        }
        if let BodyKind::Length(left) = &mut self.kind {
            let got = (&mut self.reader).take(*left).read(buffer)?;
            if got == 0 && *left > 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            *left -= got as u64;
            return Ok(got);
        }
        if self.chunk_left == 0 {
            self.chunk_left = self.chunk_size()?;
            if self.chunk_left == 0 {
                self.chunk_end()?;
                self.over = true;
                return Ok(0);
            }
        }
        let got = (&mut self.reader).take(self.chunk_left).read(buffer)?;
        if got == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.chunk_left -= got as u64;
        if self.chunk_left == 0 {
            self.chunk_end()?;
        }
        Ok(got)
    }
}

impl<R: BufRead> Body<R> {
    fn chunk_size(&mut self) -> std::io::Result<u64> {
        let mut line = Vec::new();
        (&mut self.reader).take(64).read_until(b'\n', &mut line)?;
        let text = std::str::from_utf8(&line).unwrap_or_default();
        u64::from_str_radix(text.trim(), 16).map_err(|_| std::io::ErrorKind::UnexpectedEof.into())
    }

    fn chunk_end(&mut self) -> std::io::Result<()> {
        let mut end = [0_u8; 2];
        self.reader.read_exact(&mut end)
    }
}

/// JSON values, one a line, as they arrive.
#[derive(Debug)]
pub(crate) struct Lines {
    body: BufReader<Body<BufReader<UnixStream>>>,
    line: Vec<u8>,
}

impl Lines {
    /// The next line as it is, with its end; empty at the end of the stream.
    pub(crate) fn next_line(&mut self) -> Result<&[u8]> {
        self.line.clear();
        self.body
            .read_until(b'\n', &mut self.line)
            .map_err(|error| lost(&error))?;
        Ok(&self.line)
    }

    /// The next value; `None` at the end of the stream.
    pub(crate) fn next_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        match self.next_line()? {
            [] => Ok(None),
            line => parse(line).map(Some),
        }
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("wire types have only text keys")
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| {
        CliError::new(
            Code::Internal,
            format!("the daemon's answer does not fit this program: {error}"),
        )
    })
}

fn check(head: &Head, body: &[u8]) -> Result<()> {
    if head.version.as_deref() != Some(VERSION) {
        return Err(other_version(head.version.as_deref()));
    }
    if head.status < 300 {
        return Ok(());
    }
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => Err(problem.into()),
        Err(_) => Err(CliError::new(
            Code::Internal,
            format!("the daemon answered {} without saying why", head.status),
        )),
    }
}

fn other_version(theirs: Option<&str>) -> CliError {
    let theirs = theirs.unwrap_or("unknown");
    let detail = format!("the daemon is version {theirs}, this program is version {VERSION}");
    let hint = "use the daemon's own deltabox, or stop the daemon (its sandboxes end with it) and try again";
    Problem::new(Code::VersionMismatch, detail).hint(hint).into()
}

/// What to say of a daemon that is another build of our version, and what to do about it.
pub(crate) fn other_build(theirs: &str, ours: &str) -> (String, String) {
    let (theirs, ours) = (build_id::short(theirs), build_id::short(ours));
    let text = format!("the daemon is build {theirs} of version {VERSION}, this program is build {ours}");
    let hint =
        "stop the daemon when its sandboxes may go (`deltabox version` prints its pid); any command starts this one";
    (text, hint.to_owned())
}

fn lost(error: &std::io::Error) -> CliError {
    let problem = Problem::new(Code::Unreachable, format!("the daemon does not answer: {error}"));
    problem
        .hint("deltabox.log in the state directory says why; any command starts a new daemon")
        .into()
}

fn not_ours(line: &str) -> CliError {
    let problem = Problem::new(
        Code::Unreachable,
        format!("what listens there is not deltabox: it said {line:?}"),
    );
    problem.hint("check DELTABOX_HOST").into()
}

/// A text as one segment of a path or one value of a query.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &'static [u8]) -> Client {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut request = BufReader::new(theirs.try_clone().unwrap());
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                request.read_line(&mut line).unwrap();
            }
            theirs.write_all(text).unwrap();
        });
        Client::new(ours)
    }

    #[test]
    fn lengths_and_chunks() {
        let head = format!("HTTP/1.1 200 OK\r\ndeltabox-version: {VERSION}\r\n");
        let whole: &'static [u8] = format!("{head}content-length: 3\r\n\r\n[1]").leak().as_bytes();
        assert_eq!(answer(whole).get::<Vec<u8>>("/").unwrap(), [1]);
        let chunks = format!("{head}transfer-encoding: chunked\r\n\r\n2\r\n[1\r\n4\r\n]\n[2\r\n2\r\n]\n\r\n0\r\n\r\n");
        let client = answer(chunks.leak().as_bytes());
        let mut lines = client.stream("/").unwrap();
        assert_eq!(lines.next_value::<Vec<u8>>().unwrap(), Some(vec![1]));
        assert_eq!(lines.next_value::<Vec<u8>>().unwrap(), Some(vec![2]));
        assert_eq!(lines.next_value::<Vec<u8>>().unwrap(), None);
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n[1]",
        ] {
            let error = answer(text.as_bytes()).get::<Vec<u8>>("/").unwrap_err();
            assert!(error.is(Code::Unreachable), "{text:?}: {error:?}");
        }
    }

    #[test]
    fn another_version_is_said_before_anything_else() {
        let text = b"HTTP/1.1 404 Not Found\r\ndeltabox-version: 0.0.1\r\ncontent-length: 0\r\n\r\n";
        let error = answer(text).get::<Vec<u8>>("/").unwrap_err();
        assert!(error.is(Code::VersionMismatch), "{error:?}");
        assert_eq!(error.exit_code, 6);
    }

    #[test]
    fn escaping() {
        assert_eq!(escape("HEAD~2"), "HEAD~2");
        assert_eq!(escape("@{-1} é/"), "%40%7B-1%7D%20%C3%A9%2F");
    }
}
