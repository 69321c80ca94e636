//! Memory, requests and time stay within their bounds, whatever a file claims.
