//! What the types forbid, the database refuses as well: illegal moves, and two living things of one key.

use std::path::PathBuf;

use conductor_domain::lifecycle::{STATE_MOVES, State};
use conductor_store::OpenOptions;
use rusqlite::{Connection, params};
use uuid::Uuid;

/// The folder goes when the test ends.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A fresh database, opened behind the store's back. References are not checked there, so that a row can stand alone.
fn database() -> (Folder, Connection) {
    let folder = std::env::temp_dir().join(format!("conductor-invariants-{}", Uuid::now_v7()));
    let path = folder.join("c.db");
    let options = OpenOptions {
        url: format!("sqlite:{}", path.display()),
        key: None,
        key_file: folder.join("key"),
        migrate: true,
        connections: 1,
    };
    drop(options.open().unwrap());
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "foreign_keys", "OFF").unwrap();
    (Folder(folder), connection)
}

fn place(state: State) -> &'static str {
    match state {
        State::Provision | State::Provisioned => "live",
        State::Destroy => "doomed",
        State::Destroyed => "gone",
    }
}

fn insert(connection: &Connection, state: State, key: &str) -> rusqlite::Result<Vec<u8>> {
    let id = Uuid::now_v7().as_bytes().to_vec();
    let other = [0u8; 16];
    connection.execute(
        "INSERT INTO resources (id, organisation_id, environment_id, domain_id, kind, class, key_tag, key_name, name, slug,
             workload, template_version_id, prev_state, state, place, status, kept_by, protected, generation,
             observed_generation, spec, fence, waiters, lineage_id, made_change_id, spec_change_id, created_by, created_at,
             updated_at)
         VALUES (?1, ?2, ?2, ?2, 'db', 'default', 'shared', ?3, 'orders', hex(?1), 0, ?2, ?4, ?4, ?5, 'done', 'consumers', 0,
             1, 0, '{}', 0, 0, ?2, ?2, ?2, 'me', 0, 0)",
        params![id, other, key, state.as_str(), place(state)],
    )?;
    Ok(id)
}

#[test]
fn only_the_moves_of_the_types_are_possible() {
    let (_folder, connection) = database();
    for (i, &from) in State::ALL.iter().enumerate() {
        for (j, &to) in State::ALL.iter().enumerate() {
            let id = insert(&connection, from, &format!("{i}-{j}")).unwrap();
            let moved = connection.execute(
                "UPDATE resources SET prev_state = state, state = ?2, place = ?3 WHERE id = ?1",
                params![id, to.as_str(), place(to)],
            );
            let allowed = from == to || STATE_MOVES.contains(&(from, to));
            assert_eq!(moved.is_ok(), allowed, "{from} to {to}: {moved:?}");
        }
    }
}

#[test]
fn a_key_has_one_living_resource_and_any_number_of_dead_ones() {
    let (_folder, connection) = database();
    insert(&connection, State::Provisioned, "orders").unwrap();
    for dead in [State::Destroyed, State::Destroyed, State::Destroy] {
        insert(&connection, dead, "orders").unwrap();
    }
    let twin = insert(&connection, State::Provision, "orders").unwrap_err().to_string();
    assert!(twin.starts_with("UNIQUE"), "{twin}");
}

#[test]
fn where_a_resource_stands_cannot_be_said_twice_differently() {
    let (_folder, connection) = database();
    let id = insert(&connection, State::Provisioned, "orders").unwrap();
    let lie = connection.execute("UPDATE resources SET place = 'gone' WHERE id = ?1", params![id]);
    assert!(lie.unwrap_err().to_string().starts_with("CHECK"));
}
