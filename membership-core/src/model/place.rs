//! Where silos are on hash rings: what is chosen by ring order is the same for everybody.

use xxhash_rust::xxh3::xxh3_64;

use super::address::SiloAddress;

/// The place of a silo on ring 0; its places on the other rings are derived from this one.
pub(crate) fn place(silo: &SiloAddress) -> u64 {
    let mut bytes = [0; 26];
    match silo.ip() {
        std::net::IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
        std::net::IpAddr::V6(ip) => bytes[..16].copy_from_slice(&ip.octets()),
    }
    bytes[16..18].copy_from_slice(&silo.port().to_le_bytes());
    bytes[18..].copy_from_slice(&silo.epoch().to_le_bytes());
    xxh3_64(&bytes)
}

/// The place of the same silo on another ring: SplitMix64's finalizer over the place and the number
/// of the ring.
pub(crate) fn on_ring(place: u64, ring: u64) -> u64 {
    let mut x = place ^ ring.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
