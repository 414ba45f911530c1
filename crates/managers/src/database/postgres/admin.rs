//! What the administrator's role does on the server: look first, then act, and act only on what is ours.

use conductor_domain::work::{Difference, Failure};
use tokio_postgres::{Client, error::SqlState};

pub(super) struct Admin<'a> {
    pub client: Client,
    /// Of the database and of its role.
    pub name: &'a str,
    pub mark: &'a str,
}

impl Admin<'_> {
    /// The comment on the role, empty where there is none; `None` when there is no role.
    pub async fn role_mark(&self) -> Result<Option<String>, Failure> {
        let sql = "SELECT coalesce(shobj_description(oid, 'pg_authid'), '') FROM pg_roles WHERE rolname = $1";
        let row = self.client.query_opt(sql, &[&self.name]).await.map_err(failure("look for the role"))?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Whether the role is there; an error when it is somebody else's.
    async fn own_role(&self) -> Result<bool, Failure> {
        match self.role_mark().await? {
            None => Ok(false),
            Some(mark) if mark == self.mark => Ok(true),
            Some(_) => Err(Failure::failed(format!(
                "the server has a role {} that was not made for this resource",
                self.name
            ))
            .hint("rename or remove that role")),
        }
    }

    /// The owner of the database; `None` when there is no database.
    pub async fn owner(&self) -> Result<Option<String>, Failure> {
        let sql = "SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = $1";
        let row =
            self.client.query_opt(sql, &[&self.name]).await.map_err(failure("look for the database"))?;
        Ok(row.map(|row| row.get(0)))
    }

    async fn own_database(&self) -> Result<bool, Failure> {
        match self.owner().await? {
            None => Ok(false),
            Some(owner) if owner == self.name => Ok(true),
            Some(owner) => Err(Failure::failed(format!("database {} belongs to {owner}", self.name))
                .hint("rename or remove that database")),
        }
    }

    /// What of the role and the database is not as it was made.
    pub async fn differences(&self) -> Result<Vec<Difference>, Failure> {
        let sql = "SELECT rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolconnlimit, rolvaliduntil IS NOT NULL
            AND rolvaliduntil <> 'infinity' FROM pg_roles WHERE rolname = $1";
        let row = self.client.query_opt(sql, &[&self.name]).await.map_err(failure("look at the role"))?;
        let Some(row) = row else { return Ok(vec![]) };
        let flags =
            [("login", 0, true), ("superuser", 1, false), ("createdb", 2, false), ("createrole", 3, false)];
        let flags = flags.into_iter().map(|(what, at, made)| (what, made, row.get::<_, bool>(at)));
        let flags = flags.chain([("expires", false, row.get(5))]);
        let mut found: Vec<Difference> = flags
            .filter(|(_, made, is)| made != is)
            .map(|(what, made, is)| Difference {
                path: format!("role.{what}"),
                recorded: made.into(),
                actual: is.into(),
            })
            .collect();
        let limit: i32 = row.get(4);
        if limit != -1 {
            let path = "role.connectionLimit".to_owned();
            found.push(Difference { path, recorded: (-1).into(), actual: limit.into() });
        }
        if let Some(owner) = self.owner().await?.filter(|owner| owner != self.name) {
            let path = "database.owner".to_owned();
            found.push(Difference { path, recorded: self.name.into(), actual: owner.into() });
        }
        Ok(found)
    }

    /// Puts back what somebody changed of the role or the database.
    pub async fn put_right(&self) -> Result<(), Failure> {
        let name = quoted(self.name);
        for difference in self.differences().await? {
            let sql = match difference.path.as_str() {
                "role.superuser" => format!("ALTER ROLE {name} NOSUPERUSER"),
                "role.createdb" => format!("ALTER ROLE {name} NOCREATEDB"),
                "role.createrole" => format!("ALTER ROLE {name} NOCREATEROLE"),
                "role.connectionLimit" => format!("ALTER ROLE {name} CONNECTION LIMIT -1"),
                "role.expires" => format!("ALTER ROLE {name} VALID UNTIL 'infinity'"),
                "database.owner" => format!("ALTER DATABASE {name} OWNER TO {name}"),
                // Making the role sees to that.
                _ => continue,
            };
            self.client.batch_execute(&sql).await.map_err(failure("put the role right"))?;
        }
        Ok(())
    }

    pub async fn ensure_role(&self, password: &str) -> Result<(), Failure> {
        let verb = if self.own_role().await? { "ALTER" } else { "CREATE" };
        let name = quoted(self.name);
        let verifier = postgres_protocol::password::scram_sha_256(password.as_bytes());
        // One transaction: a role is never left without its mark.
        let sql = format!(
            "BEGIN; {verb} ROLE {name} LOGIN PASSWORD {}; COMMENT ON ROLE {name} IS {}; GRANT {name} TO CURRENT_USER; COMMIT",
            literal(&verifier),
            literal(self.mark),
        );
        self.client.batch_execute(&sql).await.map_err(failure("make the role"))
    }

    pub async fn ensure_database(&self) -> Result<(), Failure> {
        let name = quoted(self.name);
        if !self.own_database().await? {
            let sql = format!("CREATE DATABASE {name} OWNER {name}");
            self.client.batch_execute(&sql).await.map_err(failure("make the database"))?;
        }
        let sql = format!("REVOKE ALL ON DATABASE {name} FROM PUBLIC");
        self.client.batch_execute(&sql).await.map_err(failure("close the database to others"))
    }

    pub async fn drop_database(&self) -> Result<(), Failure> {
        if !self.own_database().await? {
            return Ok(());
        }
        let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
        self.client.query(ended, &[&self.name]).await.map_err(failure("end the database's connections"))?;
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quoted(self.name));
        self.client.batch_execute(&sql).await.map_err(failure("drop the database"))
    }

    pub async fn drop_role(&self) -> Result<(), Failure> {
        if !self.own_role().await? {
            return Ok(());
        }
        let name = quoted(self.name);
        let sql = format!("BEGIN; DROP OWNED BY {name}; DROP ROLE {name}; COMMIT");
        self.client.batch_execute(&sql).await.map_err(failure("drop the role"))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(super) fn failure(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Failure {
    move |error| {
        let Some(reason) = error.as_db_error() else {
            let cause =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            return Failure::transient(format!("cannot {what}: {cause}"));
        };
        let message = format!("cannot {what}: {}", reason.message());
        let code = reason.code();
        // Connections, resources, operators, conflicts, and what is being used at this moment.
        let passing = ["08", "53", "57", "40"].iter().any(|class| code.code().starts_with(class))
            || [SqlState::OBJECT_IN_USE, SqlState::DUPLICATE_OBJECT, SqlState::DUPLICATE_DATABASE]
                .contains(code)
            || (*code == SqlState::INTERNAL_ERROR && reason.message().contains("concurrently"));
        match code.code().starts_with("28") || *code == SqlState::INSUFFICIENT_PRIVILEGE {
            true => Failure::failed(message)
                .hint("the server's address must name a role that may create roles and databases"),
            false if passing => Failure::transient(message),
            false => Failure::failed(message),
        }
    }
}
