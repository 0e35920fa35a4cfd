//! An answer on its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use ipc_proto::broker::UpstreamTrouble;

/// The body of an answer.
#[derive(Debug)]
pub struct Body {}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = UpstreamTrouble;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamTrouble>>> {
        Poll::Ready(Some(Err(UpstreamTrouble::Cut)))
    }
}
