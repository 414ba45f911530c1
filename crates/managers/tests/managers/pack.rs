//! Packing and unpacking a template's files.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use conductor_managers::pack::{LIMIT, PackError, digest_of, pack, prepare, unpack};
use serde_json::json;
use tempfile::TempDir;

use crate::support::object;

fn module(folder: &Path) {
    fs::create_dir_all(folder.join("modules/inner")).unwrap();
    fs::write(folder.join("main.tf"), "# main").unwrap();
    fs::write(folder.join("modules/inner/a.tf"), "# inner").unwrap();
    fs::write(folder.join("run.sh"), "#!/bin/sh").unwrap();
    fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("main.tf", folder.join("link.tf")).unwrap();
}

#[test]
fn the_same_files_give_the_same_digest_and_come_back() {
    let (one, two, out) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    module(one.path());
    module(two.path());
    for skipped in [".git/config", ".terraform/x", "terraform.tfstate", "terraform.tfstate.backup"] {
        let path = two.path().join(skipped);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    fs::create_dir(two.path().join("empty")).unwrap();
    fs::set_permissions(two.path().join("main.tf"), fs::Permissions::from_mode(0o600)).unwrap();
    let packed = pack(one.path()).unwrap();
    assert_eq!(packed, pack(two.path()).unwrap());
    assert!(packed.digest.starts_with("sha256:") && packed.digest.len() == 71);
    assert_eq!(digest_of(&packed.bytes).unwrap(), packed.digest);
    fs::write(two.path().join("main.tf"), "# changed").unwrap();
    assert_ne!(packed.digest, pack(two.path()).unwrap().digest);

    unpack(&packed.bytes, out.path()).unwrap();
    assert_eq!(fs::read_to_string(out.path().join("link.tf")).unwrap(), "# main");
    assert_eq!(fs::read_to_string(out.path().join("modules/inner/a.tf")).unwrap(), "# inner");
    assert_eq!(fs::metadata(out.path().join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(pack(out.path()).unwrap(), packed);
}

#[test]
fn what_does_not_belong_is_refused() {
    let folder = TempDir::new().unwrap();
    assert!(matches!(pack(folder.path()), Err(PackError::Empty(_))));
    for (name, target) in [("outside", "/etc/passwd"), ("up", ".."), ("nowhere", "missing")] {
        symlink(target, folder.path().join(name)).unwrap();
        assert!(matches!(pack(folder.path()), Err(PackError::LinkLeaves(_))), "{name}");
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    fs::File::create(folder.path().join("big")).unwrap().set_len(LIMIT + 1).unwrap();
    assert!(pack(folder.path()).unwrap_err().to_string().contains("more than 64 MiB"));
    assert!(pack(&folder.path().join("none")).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn an_archive_cannot_write_outside_its_folder() {
    use std::io::Write;
    let archive = |build: &dyn Fn(&mut tar::Builder<Vec<u8>>)| {
        let mut builder = tar::Builder::new(Vec::new());
        build(&mut builder);
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(&builder.into_inner().unwrap()).unwrap();
        encoder.finish().unwrap()
    };
    let entry = |kind, name: &str, link: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o644);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        header
    };
    for name in ["/tmp/absolute", "../up", "a/../../up"] {
        let bytes = archive(&|builder| {
            builder.append(&entry(tar::EntryType::Regular, name, ""), &b""[..]).unwrap();
        });
        let out = TempDir::new().unwrap();
        assert!(matches!(unpack(&bytes, &out.path().join("in")), Err(PackError::Outside(_))), "{name}");
        assert!(!out.path().join("up").exists());
    }
    let bytes = archive(&|builder| {
        builder.append(&entry(tar::EntryType::Symlink, "link", "/etc"), &b""[..]).unwrap();
    });
    let out = TempDir::new().unwrap();
    assert!(matches!(unpack(&bytes, out.path()), Err(PackError::Outside(_))));
    assert!(fs::symlink_metadata(out.path().join("link")).is_err());
    assert!(unpack(b"nonsense", out.path()).is_err());
}

#[test]
fn prepare_packs_what_a_template_names() {
    let base = TempDir::new().unwrap();
    fs::create_dir(base.path().join("mod")).unwrap();
    module(&base.path().join("mod"));
    fs::write(base.path().join("tool.py"), "#!/usr/bin/env python3\n").unwrap();
    fs::write(base.path().join("notes"), "words").unwrap();
    let run = |manager: &str, config| prepare(&object(config), manager, base.path());
    let source = run("terraform", json!({"source": "./mod"})).unwrap().unwrap();
    assert_eq!(source, pack(&base.path().join("mod")).unwrap());
    assert!(run("terraform", json!({"source": "git::https://x/y?ref=v1"})).unwrap().is_none());
    assert!(run("terraform", json!({"source": "./nothing"})).unwrap_err().message.contains("no folder"));
    let program = run("command", json!({"program": "./tool.py"})).unwrap().unwrap();
    let out = TempDir::new().unwrap();
    unpack(&program.bytes, out.path()).unwrap();
    assert_eq!(fs::metadata(out.path().join("tool.py")).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(run("command", json!({"program": "python3"})).unwrap().is_none());
    assert!(run("command", json!({"program": "./notes"})).unwrap_err().hint.unwrap().contains("#!"));
    assert!(run("database", json!({"engine": "sqlite"})).unwrap().is_none());
}
