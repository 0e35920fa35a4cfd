//! One connection that speaks HTTP/1.1 with the service.

use std::error::Error as StdError;
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use ipc_proto::broker::UpstreamTrouble;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, spawn_local};

/// The longest head of an answer, in bytes.
pub(super) const MAX_HEAD: usize = 64 * 1024;
/// The most headers of an answer.
pub(super) const MAX_HEADERS: usize = 100;

/// A connection. Dropped, it is closed at once, whatever is under way: so a request is cancelled.
#[derive(Debug)]
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// No byte of the request has left: here it is again.
    Unsent(Box<Request<Full<Bytes>>>),
    /// It may have reached the service.
    Lost(UpstreamTrouble),
}

impl Link {
    /// Begins to speak, inside a `LocalSet`.
    ///
    /// # Errors
    /// [`UpstreamTrouble`].
    pub(super) async fn open<T>(stream: T) -> Result<Link, UpstreamTrouble>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = Builder::new()
            .max_header_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| trouble(&error))?;
        let driven = spawn_local(async move {
            // How it ends is told to whoever waits for an answer.
            let _ = connection.await;
        });
        Ok(Link { sender, task: driven.abort_handle() })
    }

    /// Whether no further request can be sent.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until a request can be sent; false: it never can.
    pub(super) async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and waits for the head of its answer. Interim answers (1xx) are passed over.
    ///
    /// # Errors
    /// [`Failed`].
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failed> {
        match self.sender.try_send_request(request).await {
            Ok(response) => Ok(response),
            Err(mut failed) => Err(match failed.take_message() {
                Some(request) => Failed::Unsent(Box::new(request)),
                None => Failed::Lost(trouble(failed.error())),
            }),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What went wrong on an open connection.
pub(super) fn trouble(error: &hyper::Error) -> UpstreamTrouble {
    if error.is_parse() {
        return UpstreamTrouble::Malformed;
    }
    // What does not decode, a chunk's length or a record of TLS, is an error of this kind somewhere below.
    let mut cause: Option<&dyn StdError> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
        }) {
            return UpstreamTrouble::Malformed;
        }
        cause = error.source();
    }
    UpstreamTrouble::Cut
}
