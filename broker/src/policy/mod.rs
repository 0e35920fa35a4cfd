//! What an agent may ask of a model.
