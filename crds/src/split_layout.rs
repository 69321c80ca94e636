//! Manifests split over several files.
