//! Secrets at rest: XChaCha20-Poly1305 under a data key per organisation, which is itself sealed by the
//! installation's key. What is sealed is bound to its organisation, its kind and its owner: moved elsewhere, it
//! does not open. Digests of secrets are HMACs under a key that never rotates.

use std::{
    collections::HashMap,
    io::Write,
    path::Path,
    sync::{Arc, RwLock},
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use conductor_domain::ids::OrganisationId;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

const VERSION: u8 = 1;
const KEY_ID: usize = 4;
const NONCE: usize = 24;
/// Marks a sealed leaf in otherwise readable JSON.
const SEALED: &str = "$sealed";

/// The installation's key.
#[derive(Clone)]
pub struct MasterKey([u8; 32]);

impl MasterKey {
    pub fn generate() -> Result<Self> {
        Ok(Self(random()?))
    }

    /// 32 bytes as base64 or as 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let bytes = if text.len() == 64 {
            (0..32)
                .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16))
                .collect::<std::result::Result<_, _>>()
                .ok()
        } else {
            BASE64.decode(text).ok()
        };
        bytes
            .and_then(|bytes: Vec<u8>| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| Error::Key("it is not 32 bytes in base64 or hexadecimal".into()))
    }

    pub fn read(path: &Path) -> Result<Option<Self>> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                Self::parse(&text).map(Some).map_err(|e| Error::Key(format!("{}: {e}", path.display())))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Key(format!("{}: {error}", path.display()))),
        }
    }

    /// Writes a new key, readable by its owner only. Of several processes the first wins, and all use its key.
    pub fn create(path: &Path) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let failed = |error: std::io::Error| Error::Key(format!("{}: {error}", path.display()));
        let key = Self::generate()?;
        let fresh = path.with_extension(format!("new-{}", std::process::id()));
        let mut file = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(failed)?;
        file.write_all(BASE64.encode(key.0).as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        let linked = std::fs::hard_link(&fresh, path);
        let _ = std::fs::remove_file(&fresh);
        match linked {
            Ok(()) => Ok(key),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::read(path)?.ok_or_else(|| failed(error))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Error::Key(format!("no random bytes: {error}")))?;
    Ok(bytes)
}

#[derive(Clone)]
struct DataKey {
    id: [u8; KEY_ID],
    cipher: XChaCha20Poly1305,
}

impl DataKey {
    fn new(key: &[u8; 32]) -> Self {
        let digest = Sha256::digest(key);
        let mut id = [0; KEY_ID];
        id.copy_from_slice(&digest[..KEY_ID]);
        Self { id, cipher: XChaCha20Poly1305::new(key.into()) }
    }

    fn seal(&self, aad: &[u8], plain: &[u8]) -> Result<Vec<u8>> {
        let nonce: [u8; NONCE] = random()?;
        let body = self
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad })
            .map_err(|_| Error::Key("could not seal".into()))?;
        let mut sealed = Vec::with_capacity(1 + KEY_ID + NONCE + body.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.id);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&body);
        Ok(sealed)
    }

    fn open(&self, aad: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        let broken =
            || Error::Key("a sealed value does not open: another key, or not where it belongs".into());
        if sealed.len() < 1 + KEY_ID + NONCE || sealed[0] != VERSION || sealed[1..1 + KEY_ID] != self.id {
            return Err(broken());
        }
        let nonce: [u8; NONCE] = sealed[1 + KEY_ID..1 + KEY_ID + NONCE].try_into().map_err(|_| broken())?;
        self.cipher
            .decrypt(&XNonce::from(nonce), Payload { msg: &sealed[1 + KEY_ID + NONCE..], aad })
            .map_err(|_| broken())
    }
}

/// What a sealed value belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub organisation: OrganisationId,
    pub kind: &'a str,
    pub id: &'a [u8],
}

impl Owner<'_> {
    fn aad(&self) -> Vec<u8> {
        let mut aad = self.organisation.bytes();
        aad.extend_from_slice(self.kind.as_bytes());
        aad.push(0);
        aad.extend_from_slice(self.id);
        aad
    }
}

pub struct Sealer {
    master: DataKey,
    digests: RwLock<[u8; 32]>,
    organisations: RwLock<HashMap<OrganisationId, DataKey>>,
}

impl Sealer {
    pub fn new(master: &MasterKey) -> Arc<Self> {
        Arc::new(Self {
            master: DataKey::new(&master.0),
            digests: RwLock::new([0; 32]),
            organisations: RwLock::default(),
        })
    }

    /// The check row: sealed once by the right key, opened at every start. It holds the key of the digests.
    pub(crate) fn new_check(&self) -> Result<Vec<u8>> {
        self.master.seal(b"key-check", &random::<32>()?)
    }

    pub(crate) fn open_check(&self, check: &[u8]) -> Result<()> {
        let key = self
            .master
            .open(b"key-check", check)
            .map_err(|_| Error::Key("this is not the key that this database was sealed with".into()))?;
        let key = key.try_into().map_err(|_| Error::Key("the check row is damaged".into()))?;
        *self.digests.write().map_err(|_| Error::Key("poisoned".into()))? = key;
        Ok(())
    }

    pub(crate) fn new_data_key(&self, organisation: OrganisationId) -> Result<Vec<u8>> {
        self.master.seal(&organisation.bytes(), &random::<32>()?)
    }

    pub(crate) fn load_data_key(&self, organisation: OrganisationId, sealed: &[u8]) -> Result<()> {
        let key: [u8; 32] = self
            .master
            .open(&organisation.bytes(), sealed)?
            .try_into()
            .map_err(|_| Error::Key("an organisation's key is damaged".into()))?;
        let mut keys = self.organisations.write().map_err(|_| Error::Key("poisoned".into()))?;
        keys.insert(organisation, DataKey::new(&key));
        Ok(())
    }

    fn data_key(&self, organisation: OrganisationId) -> Result<DataKey> {
        let keys = self.organisations.read().map_err(|_| Error::Key("poisoned".into()))?;
        keys.get(&organisation).cloned().ok_or_else(|| Error::Key(format!("no key for {organisation}")))
    }

    pub fn seal(&self, owner: Owner<'_>, plain: &[u8]) -> Result<Vec<u8>> {
        self.data_key(owner.organisation)?.seal(&owner.aad(), plain)
    }

    pub fn open(&self, owner: Owner<'_>, sealed: &[u8]) -> Result<Vec<u8>> {
        self.data_key(owner.organisation)?.open(&owner.aad(), sealed)
    }

    /// A leaf of readable JSON that is not to be read.
    pub fn seal_leaf(&self, owner: Owner<'_>, value: &Value) -> Result<Value> {
        let sealed = self.seal(owner, value.to_string().as_bytes())?;
        Ok(serde_json::json!({ SEALED: BASE64.encode(sealed) }))
    }

    /// The leaf as it was; anything that is not sealed is returned as it is.
    pub fn open_leaf(&self, owner: Owner<'_>, value: &Value) -> Result<Value> {
        let Some(sealed) = sealed_leaf(value) else {
            return Ok(value.clone());
        };
        let bytes = BASE64.decode(sealed).map_err(|_| Error::Corrupt("a sealed leaf is damaged".into()))?;
        serde_json::from_slice(&self.open(owner, &bytes)?)
            .map_err(|_| Error::Corrupt("a sealed leaf is damaged".into()))
    }

    /// A digest that tells nothing without the key.
    pub fn digest(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let key = self.digests.read().map_err(|_| Error::Key("poisoned".into()))?;
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&*key)
            .map_err(|_| Error::Key("no digest key".into()))?;
        mac.update(bytes);
        Ok(mac.finalize().into_bytes().to_vec())
    }
}

/// No digest begins with this byte: what is digested is JSON, text or the id of a version.
const DERIVED: u8 = 0xff;

impl Sealer {
    fn purpose(&self, purpose: &str, bytes: &[u8]) -> Result<Hmac<Sha256>> {
        let key = self.digest(&[&[DERIVED], purpose.as_bytes()].concat())?;
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&key)
            .map_err(|_| Error::Key("no digest key".into()))?;
        mac.update(bytes);
        Ok(mac)
    }

    /// Proof that this installation said so, for one purpose.
    pub fn vouch(&self, purpose: &str, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(self.purpose(purpose, bytes)?.finalize().into_bytes().to_vec())
    }

    /// Whether it did; takes the same time wherever the difference is.
    pub fn vouched(&self, purpose: &str, bytes: &[u8], proof: &[u8]) -> Result<bool> {
        Ok(self.purpose(purpose, bytes)?.verify_slice(proof).is_ok())
    }
}

fn sealed_leaf(value: &Value) -> Option<&str> {
    let entries = value.as_object()?;
    if entries.len() == 1 { entries.get(SEALED)?.as_str() } else { None }
}

/// Whether this is a sealed leaf.
pub fn is_sealed(value: &Value) -> bool {
    sealed_leaf(value).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer() -> (Arc<Sealer>, OrganisationId) {
        let sealer = Sealer::new(&MasterKey::generate().unwrap());
        let organisation = OrganisationId(uuid::Uuid::from_u128(1));
        let key = sealer.new_data_key(organisation).unwrap();
        sealer.load_data_key(organisation, &key).unwrap();
        (sealer, organisation)
    }

    #[test]
    fn what_is_sealed_opens_only_where_it_belongs() {
        let (sealer, organisation) = sealer();
        let mine = Owner { organisation, kind: "outputs", id: b"one" };
        let sealed = sealer.seal(mine, b"hush").unwrap();
        assert!(!sealed.windows(4).any(|w| w == b"hush"));
        assert_eq!(sealer.open(mine, &sealed).unwrap(), b"hush");
        assert!(sealer.open(Owner { id: b"two", ..mine }, &sealed).is_err());
        assert!(sealer.open(Owner { kind: "spec", ..mine }, &sealed).is_err());
    }

    #[test]
    fn what_was_vouched_for_holds_for_that_alone() {
        let (sealer, _) = sealer();
        let proof = sealer.vouch("door", b"one").unwrap();
        assert!(sealer.vouched("door", b"one", &proof).unwrap());
        assert!(!sealer.vouched("door", b"two", &proof).unwrap());
        assert!(!sealer.vouched("gate", b"one", &proof).unwrap());
        assert!(!sealer.vouched("door", b"one", &proof[1..]).unwrap());
        assert!(!sealer.vouched("door", b"one", b"").unwrap());
    }

    #[test]
    fn another_key_is_told_apart_at_the_start() {
        let (right, wrong) = (Sealer::new(&MasterKey([1; 32])), Sealer::new(&MasterKey([2; 32])));
        let check = right.new_check().unwrap();
        assert!(right.open_check(&check).is_ok());
        assert!(matches!(wrong.open_check(&check), Err(Error::Key(_))));
    }

    #[test]
    fn a_key_file_is_made_once_and_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("conductor-key-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("key");
        let first = MasterKey::create(&path).unwrap();
        let second = MasterKey::create(&path).unwrap();
        assert_eq!(first.0, second.0);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
