//! Model files: GGUF reading, writing and synthesis.
