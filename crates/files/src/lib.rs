//! File state: the same four verbs as `engine`, for a directory tree. (Interface first: the bodies are being written.)
#![forbid(unsafe_code)]
