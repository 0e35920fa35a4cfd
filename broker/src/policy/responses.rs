use super::json::Object;
use super::{Policy, Refusal};
pub(super) fn responses(_b: &mut Object, _p: &Policy) -> Result<(), Refusal> {
    Err(Refusal::plain(super::Rule::RunEnded))
}
