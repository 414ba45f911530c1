//! Tokens of operations: each opens the calls about one claim and dies with it.
//!
//! Nothing is stored. A token is a proof, under a key of the installation, of the operation and the fence it was
//! made for; whether that claim still holds is looked up by every call anyway. So a token is as good as its lease.
//!
//! Workers of an earlier release know no such tokens. What they hold, and nothing else, takes the token of their pool:
//! it is noted with each claim whether it has a token.

use conductor_api::worker::{Acquired, Claim};
use conductor_store::Result;

use crate::{Engine, access::hex, link::is_content};

const PURPOSE: &str = "operation token";
const PREFIX: &str = "cdo_";

/// What a worker's own token is worth for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolStanding {
    /// It is held by a worker of an earlier release.
    Holds,
    /// It is over: whoever held it shall hear so.
    Lost,
    Nothing,
}

fn body(claim: Claim) -> Vec<u8> {
    [claim.operation.0.as_bytes().as_slice(), &claim.fence.to_be_bytes()].concat()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    (digits.len().is_multiple_of(2)).then(|| digits.chunks(2).map(pair).collect::<Option<_>>())?
}

impl Engine {
    /// Whether this is a token of some operation, by its look alone.
    pub fn is_operation_token(token: &str) -> bool {
        token.starts_with(PREFIX)
    }

    pub fn operation_token(&self, claim: Claim) -> Result<String> {
        Ok(format!("{PREFIX}{}", hex(&self.db.sealer().vouch(PURPOSE, &body(claim))?)))
    }

    /// Whether a token was made for this very claim. That the claim still holds is for the call to see.
    pub fn opens(&self, token: &str, claim: Claim) -> Result<bool> {
        match token.strip_prefix(PREFIX).and_then(unhex) {
            Some(proof) => self.db.sealer().vouched(PURPOSE, &body(claim), &proof),
            None => Ok(false),
        }
    }

    /// What the token of a pool may say about a claim.
    pub async fn pool_standing(&self, claim: Claim) -> Result<PoolStanding> {
        let last = self.db.read(move |tx| tx.last_claim(claim.operation)).await?;
        Ok(match last {
            Some((fence, false)) if fence == claim.fence => PoolStanding::Holds,
            Some((fence, _)) if fence > claim.fence => PoolStanding::Lost,
            _ => PoolStanding::Nothing,
        })
    }

    /// Files of something that is held without a token; an earlier release did not say for what it asks.
    pub async fn blob_without_claim(&self, digest: &str) -> Result<Option<Vec<u8>>> {
        let (organisation, digest) = (self.context.organisation, digest.to_owned());
        self.db
            .read(move |tx| {
                for row in tx.running_without_token(organisation)? {
                    if is_content(tx, &row, &digest)? {
                        return tx.blob(organisation, &digest);
                    }
                }
                Ok(None)
            })
            .await
    }

    /// Jobs that leave this process take their tokens along.
    pub fn with_tokens(&self, mut acquired: Acquired) -> Result<Acquired> {
        for job in &mut acquired.jobs {
            job.token = Some(self.operation_token(job.claim)?);
        }
        Ok(acquired)
    }
}
