//! Bugs planted in this crate, see [`kvilt_base::mutant`]; which layer finds each is in `docs/testing.md`.

kvilt_base::mutants! {
    // A checkpoint's order.
    /// An edit is appended to the manifest and not synced.
    EditNotSynced,
    /// A fresh manifest gets its name before it is synced.
    ManifestNotSynced,
    /// The directory is not synced between a manifest's new name and the removal of the old one.
    ManifestNameNotSynced,
    /// The witness does not learn what was synced.
    WitnessNotTold,

    // Failures and damage.
    /// Records of logs are believed whatever their checksum.
    ChecksumIgnored,
    /// A damaged filter is believed.
    FilterBelieved,
}
