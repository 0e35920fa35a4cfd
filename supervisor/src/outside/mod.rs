//! What runs outside of the sandbox: an agent for a trusted peer, and the operator's `notify` command.
