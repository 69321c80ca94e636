//! Column types: each passes intact, and foreign readers open what is published.
