//! Where states are, for people to see.

use std::collections::{BTreeMap, BTreeSet};

use conductor_api::types::StateLocation;
use conductor_domain::ids::ResourceId;
use conductor_store::{Result, Tx};

use super::DATABASE;

pub(crate) fn state_locations(
    tx: &mut Tx<'_>,
    ids: &BTreeSet<ResourceId>,
) -> Result<BTreeMap<ResourceId, StateLocation>> {
    let places = tx.state_places(ids)?.into_iter();
    let view = |(backend, location): (String, Option<String>)| StateLocation {
        backend,
        location: location.unwrap_or_else(|| DATABASE.into()),
    };
    Ok(places.map(|(id, place)| (id, view(place))).collect())
}
