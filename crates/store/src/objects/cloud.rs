//! S3, Azure Blob Storage and Google Cloud Storage. Credentials are found as those clouds' own tools find them: in
//! `AWS_…`, `AZURE_…` and `GOOGLE_…`, or from the machine.

use futures_util::TryStreamExt;
use object_store::{Error, ObjectStore, ObjectStoreExt, path::Path};

use super::refused;

pub(super) struct Cloud {
    store: Box<dyn ObjectStore>,
    prefix: Path,
}

impl Cloud {
    pub fn open(url: &str) -> crate::Result<Self> {
        let wrong = |error: String| refused(format!("the state store `{url}` cannot be used: {error}"));
        let parsed = url::Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        let known = ["AWS_", "AZURE_", "GOOGLE_"];
        let options =
            std::env::vars().filter(|(name, _)| known.iter().any(|prefix| name.starts_with(prefix)));
        let (store, prefix) =
            object_store::parse_url_opts(&parsed, options).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { store, prefix })
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    pub async fn put(&self, key: &str, body: Vec<u8>) -> Result<(), Error> {
        self.store.put(&self.path(key), body.into()).await.map(drop)
    }

    pub async fn get(&self, key: &str) -> Result<Vec<u8>, Error> {
        Ok(self.store.get(&self.path(key)).await?.bytes().await?.to_vec())
    }

    pub async fn list(&self, below: &str) -> Result<Vec<(String, i64)>, Error> {
        let listed: Vec<_> = self.store.list(Some(&self.path(below))).try_collect().await?;
        let key = |path: &Path| {
            let parts: Vec<String> =
                path.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_owned()).collect();
            Some(parts.join("/"))
        };
        Ok(listed
            .iter()
            .filter_map(|meta| Some((key(&meta.location)?, meta.last_modified.timestamp_micros())))
            .collect())
    }

    pub async fn delete(&self, key: &str) -> Result<(), Error> {
        match self.store.delete(&self.path(key)).await {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }
}
