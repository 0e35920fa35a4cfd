//! Admission: what is done with a task, decided by pure functions.
