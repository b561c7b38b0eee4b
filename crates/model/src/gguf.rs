//! GGUF files: placeholder module, being written.
