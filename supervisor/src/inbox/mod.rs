//! The inbox: tasks and what became of them, durable.
