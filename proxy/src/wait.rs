//! Reading and writing a connection by shared reference, each step as small as its caller says.

use std::io;

use tokio::net::TcpStream;

/// The most that is read at once.
const CHUNK: usize = 4096;

/// Appends what has come, at most `at_most` bytes; 0: the sender has no more.
pub(crate) async fn read_some(stream: &TcpStream, buffer: &mut Vec<u8>, at_most: usize) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        let mut chunk = [0; CHUNK];
        let room = chunk.get_mut(..at_most.min(CHUNK)).unwrap_or_default();
        match stream.try_read(room) {
            Ok(count) => {
                buffer.extend_from_slice(chunk.get(..count).unwrap_or_default());
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes all of it.
pub(crate) async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
