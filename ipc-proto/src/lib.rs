//! ipc-proto
