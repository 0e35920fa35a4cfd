//! A reader of length-prefixed bytes that cannot run over: each step takes from what is left, or says that it is short.

/// Fewer bytes than their prefix says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Short;

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Bytes(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Short> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        self.take(N)?.try_into().map_err(|_| Short)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u24(&mut self) -> Result<usize, Short> {
        let [a, b, c] = self.array()?;
        Ok(usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c))
    }

    /// A vector with a length of one byte (RFC 8446, section 3.4), as a reader of its own.
    pub(crate) fn vector8(&mut self) -> Result<Bytes<'a>, Short> {
        let length = self.u8()?;
        self.take(length.into()).map(Bytes)
    }

    /// A vector with a length of two bytes.
    pub(crate) fn vector16(&mut self) -> Result<Bytes<'a>, Short> {
        let length = self.u16()?;
        self.take(length.into()).map(Bytes)
    }
}
