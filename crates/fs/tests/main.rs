//! Tests of the file system's client.
