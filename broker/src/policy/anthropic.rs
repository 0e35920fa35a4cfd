use super::json::Object;
use super::{Betas, Policy, Refusal};
pub(super) fn messages(_b: &mut Object, _p: &Policy, _x: &Betas) -> Result<(), Refusal> {
    Err(Refusal::plain(super::Rule::RunEnded))
}
pub(super) fn count_tokens(_b: &mut Object, _p: &Policy, _x: &Betas) -> Result<(), Refusal> {
    Err(Refusal::plain(super::Rule::RunEnded))
}
