//! confine
