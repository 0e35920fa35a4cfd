use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ring::signature::{ED25519, UnparsedPublicKey};

use super::*;

fn open(path: &Path) -> OwnedFd {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).unwrap().into()
}

/// EVI-1: an empty file gets a seed that stays; what is signed verifies under the public key that was told, as exactly that
/// checkpoint and no other.
#[test]
fn a_key_is_made_once_and_signs_checkpoints() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("signing-key");
    let first = Signer::open(open(&path)).unwrap();
    let seed = std::fs::read(&path).unwrap();
    assert_eq!(seed.len(), SEED);
    let second = Signer::open(open(&path)).unwrap();
    assert_eq!(first.public(), second.public());
    assert_eq!(std::fs::read(&path).unwrap(), seed);

    let (seq, hash) = (0x0102_0304_0506_0708, [0xab; 32]);
    let signature = second.sign(seq, &hash).unwrap();
    assert_eq!(signature, first.sign(seq, &hash).unwrap());
    let key = UnparsedPublicKey::new(&ED25519, first.public());
    let verify = |message: &[u8]| key.verify(message, &signature.bytes()).is_ok();
    let mut message = b"anet-checkpoint-1\x01\x02\x03\x04\x05\x06\x07\x08".to_vec();
    message.extend_from_slice(&hash);
    assert!(verify(&message));
    assert!(!verify(&checkpoint_message(seq + 1, &hash)) && !verify(&hash));
    let other = Signer::open(open(&place.path().join("other"))).unwrap();
    assert_ne!(other.public(), first.public());
    assert!(!format!("{first:?}").contains("seed"));
}

/// EVI-1: the seed is RFC 8032's own: its first test vector gives its public key.
#[test]
fn a_seed_is_that_of_the_standard() {
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("key");
    drop(open(&path));
    std::fs::write(&path, hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")).unwrap();
    let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    assert_eq!(Signer::open(open(&path)).unwrap().public().to_vec(), public);
}

/// EVI-1: a file that is neither empty nor a key is never written to, whatever is wrong with it.
#[test]
fn what_is_no_key_is_left_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("key");
    drop(open(&path));
    for (contents, expected) in [
        (vec![7; 31], SigningError::Length(31)),
        (vec![7; 33], SigningError::Length(33)),
        (vec![0; 32], SigningError::Zeros),
        (vec![7; 9000], SigningError::Read(SecretError::TooLong)),
    ] {
        std::fs::write(&path, &contents).unwrap();
        assert_eq!(Signer::open(open(&path)).unwrap_err(), expected);
        assert_eq!(std::fs::read(&path).unwrap(), contents);
    }
    // Blanks around it are bytes of it.
    std::fs::write(&path, [&b" \n"[..], &[7; 28], b"\n "].concat()).unwrap();
    assert!(Signer::open(open(&path)).is_ok());

    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert_eq!(Signer::open(open(&path)).unwrap_err(), SigningError::Open(0o640));
    assert_eq!(Signer::open(File::open("/dev/null").unwrap().into()).unwrap_err(), SigningError::NoFile);
    let empty = place.path().join("empty");
    drop(open(&empty));
    let read_only = File::open(&empty).unwrap();
    assert_eq!(Signer::open(read_only.into()).unwrap_err(), SigningError::File(Errno::BADF));
    assert_eq!(std::fs::metadata(&empty).unwrap().len(), 0);
}
