//! Fetching a module from a git repository, pinned to a commit.

use std::path::{Path, PathBuf};

use conductor_domain::work::{Failure, Level};

use crate::{Allow, Destination, Job, Packed, Program, StopSignal, config::GRACE, pack, program};

/// `git::URL[//FOLDER][?ref=REF]`
#[derive(Debug, PartialEq)]
pub(super) struct Source {
    url: String,
    folder: String,
    reference: Option<String>,
}

impl Source {
    /// `None` when the source is not from git.
    pub fn parse(text: &str) -> Result<Option<Self>, Failure> {
        let Some(rest) = text.strip_prefix("git::") else {
            return Ok(None);
        };
        let wrong = |reason: &str| {
            Failure::invalid(format!("config.source: {reason}"))
                .hint("write git::URL//FOLDER?ref=TAG_BRANCH_OR_COMMIT")
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut reference = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("ref", value)) if !value.is_empty() && !value.starts_with('-') => {
                    reference = Some(value.to_owned());
                }
                Some(("depth", _)) => {}
                _ => return Err(wrong(&format!("`{pair}` is not known"))),
            }
        }
        let start = place.find("://").map_or(0, |at| at + 3);
        let (url, folder) = match place[start..].find("//") {
            Some(at) => (&place[..start + at], &place[start + at + 2..]),
            None => (place, ""),
        };
        let leaves =
            Path::new(folder).components().any(|part| !matches!(part, std::path::Component::Normal(_)));
        if url.is_empty() || url.starts_with('-') || leaves {
            return Err(wrong("the address cannot be used"));
        }
        Ok(Some(Self { url: url.to_owned(), folder: folder.to_owned(), reference }))
    }

    /// Fetches into the job's folder. Returns the module's folder there and its packed form.
    pub async fn fetch(&self, job: &dyn Job) -> Result<(PathBuf, Packed), Failure> {
        let repository = job.folder().join("repository");
        crate::files::remove_folder(&repository)?;
        let place = repository.display().to_string();
        let wanted = self.reference.as_deref().unwrap_or("HEAD");
        self.git(job, &["init", "-q", &place]).await?;
        let narrow = ["-C", &place, "fetch", "-q", "--depth=1", "--no-tags", "--", &self.url, wanted];
        let commit = match self.git(job, &narrow).await {
            Ok(_) => "FETCH_HEAD".to_owned(),
            // Some servers do not hand out single commits: fetch all there is and look.
            Err(first) => {
                let all = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"];
                self.git(job, &["-C", &place, "fetch", "-q", "--", &self.url, all[0], all[1]])
                    .await
                    .map_err(|_| first.clone())?;
                self.git(job, &["-C", &place, "rev-parse", "-q", "--verify", &format!("{wanted}^{{commit}}")])
                    .await
                    .map_err(|_| first)?
            }
        };
        let commit = self.git(job, &["-C", &place, "rev-parse", &format!("{commit}^{{commit}}")]).await?;
        self.git(job, &["-C", &place, "checkout", "-q", "--detach", &commit]).await?;
        job.log(Level::Info, &format!("{wanted} of {} is commit {commit}", shown(&self.url)));
        let folder = repository.join(&self.folder);
        if !folder.is_dir() {
            return Err(Failure::invalid(format!(
                "config.source: the repository has no folder {}",
                self.folder
            )));
        }
        let packed = pack::pack(&folder)?;
        Ok((folder, packed))
    }

    async fn git(&self, job: &dyn Job, args: &[&str]) -> Result<String, Failure> {
        let path = program::find(job, "git").ok_or_else(|| {
            Failure::failed("there is no git on the worker's PATH").hint("install git on the worker")
        })?;
        let mut env = program::environment(job);
        for (name, value) in [
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", "true"),
            ("GIT_SSH_COMMAND", "ssh -o BatchMode=yes"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
        ] {
            env.insert(name.to_owned(), value.to_owned());
        }
        let program = Program {
            path,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env,
            folder: job.folder(),
            stdin: Vec::new(),
            stop: StopSignal::Terminate,
            grace: GRACE,
            allow: self.allow(),
        };
        let mut answer = program::Collected::new(1 << 16);
        let exit = job.exec(program, &mut |line| answer.line(line)).await?;
        program::stopped(&exit)?;
        match exit.code {
            Some(0) => Ok(answer.text().to_owned()),
            _ => Err(Failure::failed(format!(
                "git cannot fetch {}: {}",
                shown(&self.url),
                program::reason("git", &exit)
            ))),
        }
    }

    fn allow(&self) -> Allow {
        let local = self.url.strip_prefix("file://").unwrap_or(&self.url);
        if local.starts_with('/') {
            return Allow { read: vec![local.into()], ..Allow::default() };
        }
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("ssh", &self.url));
        let authority = rest.split('/').next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
        let usual = match scheme {
            "https" => 443,
            "http" => 80,
            "git" => 9418,
            _ => 22,
        };
        let port = port.parse().unwrap_or(usual);
        Allow { connect: vec![Destination { host: host.to_owned(), port }], ..Allow::default() }
    }
}

/// An address without the credentials it may hold.
fn shown(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}/{path}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Source {
        Source::parse(text).unwrap().unwrap()
    }

    #[test]
    fn sources_are_read() {
        let source = parse("git::https://u:p@example.org/r.git//modules/db?ref=v1");
        assert_eq!(
            (source.url.as_str(), source.folder.as_str()),
            ("https://u:p@example.org/r.git", "modules/db")
        );
        assert_eq!(source.reference.as_deref(), Some("v1"));
        assert_eq!(shown(&source.url), "https://example.org/r.git");
        assert_eq!(source.allow().connect[0], Destination { host: "example.org".into(), port: 443 });
        assert_eq!(parse("git::git@example.org:a/b.git").allow().connect[0].port, 22);
        assert_eq!(parse("git::file:///srv/r").allow().read, [PathBuf::from("/srv/r")]);
        assert_eq!(Source::parse("./modules/x").unwrap(), None);
        for wrong in
            ["git::", "git::-x", "git::https://h/r//../up", "git::https://h/r?ref=-x", "git::https://h/r?a=b"]
        {
            assert!(Source::parse(wrong).is_err(), "{wrong}");
        }
    }
}
