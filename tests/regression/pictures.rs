//! Images that were measured wrongly, or not at all.
