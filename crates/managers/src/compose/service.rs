//! One container as one compose service, and the services of a workload as one unit.

use std::collections::BTreeMap;

use conductor_domain::work::Failure;
use serde_json::{Map, Value, json};

pub(super) fn object<'a>(
    spec: &'a Map<String, Value>,
    key: &str,
    container: &str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)> + use<'a>, Failure> {
    match spec.get(key) {
        None => Ok(None.into_iter().flatten()),
        Some(Value::Object(map)) => Ok(Some(map).into_iter().flatten()),
        Some(_) => Err(Failure::invalid(format!("containers.{container}.{key} must be an object"))),
    }
}

pub(super) fn variables(
    container: &str,
    spec: &Map<String, Value>,
) -> Result<BTreeMap<String, String>, Failure> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(object(spec, "variables", container)?.map(|(name, value)| (name.clone(), text(value))).collect())
}

pub(super) fn service(
    container: &str,
    spec: &Map<String, Value>,
    mut mounts: Vec<Value>,
    volumes: &mut Map<String, Value>,
) -> Result<Value, Failure> {
    let image = spec.get("image").and_then(Value::as_str).unwrap_or_default();
    if image.is_empty() || image == "." {
        return Err(Failure::invalid(format!("containers.{container}.image is not known"))
            .hint("name the image in the Score file, or give it when deploying with --image"));
    }
    let mut service = json!({
        "image": image,
        "env_file": format!("{container}.env"),
        "restart": "unless-stopped",
    });
    // Score's command replaces the image's entry point, its args the image's command.
    for (from, to) in [("command", "entrypoint"), ("args", "command")] {
        if let Some(words) = spec.get(from) {
            service[to] = words.clone();
        }
    }
    for (target, volume) in object(spec, "volumes", container)? {
        mounts.push(mount_volume(container, target, volume, volumes)?);
    }
    if !mounts.is_empty() {
        service["volumes"] = Value::Array(mounts);
    }
    if let Some(check) = spec.get("readinessProbe").or(spec.get("livenessProbe")).and_then(healthcheck) {
        service["healthcheck"] = check;
    }
    let mut limits = Map::new();
    for (from, to) in [("limits", "limits"), ("requests", "reservations")] {
        let amounts = spec.get("resources").and_then(|resources| resources.get(from)).map(amounts);
        if let Some(amounts) = amounts.filter(|amounts| !amounts.is_empty()) {
            limits.insert(to.to_owned(), Value::Object(amounts));
        }
    }
    if !limits.is_empty() {
        service["deploy"] = json!({"resources": limits});
    }
    Ok(service)
}

fn mount_volume(
    container: &str,
    target: &str,
    volume: &Value,
    volumes: &mut Map<String, Value>,
) -> Result<Value, Failure> {
    let source = volume.get("source").and_then(Value::as_str).filter(|source| !source.is_empty());
    let source = source.ok_or_else(|| {
        Failure::invalid(format!("containers.{container}.volumes[{target}].source is missing"))
    })?;
    let mut mount = json!({"target": target});
    if source.starts_with('/') {
        mount["type"] = "bind".into();
        mount["source"] = source.into();
    } else {
        let kept = |c: char| {
            if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' }
        };
        let name: String = source.chars().map(kept).collect();
        mount["type"] = "volume".into();
        mount["source"] = name.clone().into();
        volumes.insert(name, json!({}));
        if let Some(path) = volume.get("path").and_then(Value::as_str) {
            mount["volume"] = json!({"subpath": path});
        }
    }
    if volume.get("readOnly").and_then(Value::as_bool) == Some(true) {
        mount["read_only"] = true.into();
    }
    Ok(mount)
}

fn healthcheck(probe: &Value) -> Option<Value> {
    let test = if let Some(words) = probe.pointer("/exec/command").and_then(Value::as_array) {
        let mut test = vec![Value::from("CMD")];
        test.extend(words.iter().cloned());
        Value::Array(test)
    } else {
        let get = probe.get("httpGet")?;
        let text = |key: &str| get.get(key).and_then(Value::as_str);
        let scheme = text("scheme").unwrap_or("HTTP").to_lowercase();
        let host = text("host").unwrap_or("localhost");
        let path = text("path").unwrap_or("/").trim_start_matches('/');
        let url = quote(&format!("{scheme}://{host}:{}/{path}", get.get("port")?));
        let (mut wget, mut curl) = (String::new(), String::new());
        for header in get.get("httpHeaders").and_then(Value::as_array).into_iter().flatten() {
            let part = |key: &str| header.get(key).and_then(Value::as_str).unwrap_or_default();
            let header = quote(&format!("{}: {}", part("name"), part("value")));
            wget.push_str(&format!(" --header {header}"));
            curl.push_str(&format!(" -H {header}"));
        }
        json!([
            "CMD-SHELL",
            format!("wget -q -O /dev/null{wget} {url} || curl -fsS -o /dev/null{curl} {url}")
        ])
    };
    Some(json!({"test": test, "interval": "5s", "timeout": "5s", "retries": 12}))
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn amounts(spec: &Value) -> Map<String, Value> {
    let text = |key: &str| spec.get(key).and_then(Value::as_str);
    let mut amounts = Map::new();
    if let Some(cpus) = text("cpu").and_then(cpus) {
        amounts.insert("cpus".to_owned(), cpus.into());
    }
    if let Some(memory) = text("memory").and_then(bytes) {
        amounts.insert("memory".to_owned(), format!("{memory}b").into());
    }
    amounts
}

fn cpus(text: &str) -> Option<String> {
    match text.strip_suffix('m') {
        Some(thousandths) => Some(format!("{}", thousandths.parse::<f64>().ok()? / 1000.0)),
        None => Some(text.to_owned()),
    }
}

fn bytes(text: &str) -> Option<u64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number: f64 = text[..unit].parse().ok()?;
    let power = |letter: &str| "KMGTPE".find(letter.get(..1)?).map(|place| place as i32 + 1);
    let factor = match &text[unit..] {
        "" => 1.0,
        binary if binary.ends_with('i') => 1024f64.powi(power(binary)?),
        decimal => 1000f64.powi(power(decimal)?),
    };
    Some((number * factor) as u64)
}

/// Order and network: `before` becomes the other side's `depends_on`, and all containers share the network
/// of the first one that waits for none, which publishes the ports.
pub(super) fn connect(
    containers: &Map<String, Value>,
    service: Option<&Value>,
    services: &mut Map<String, Value>,
) -> Result<(), Failure> {
    for (name, spec) in containers {
        for (other, rule) in spec.get("before").and_then(Value::as_object).into_iter().flatten() {
            let condition = match rule.get("ready").and_then(Value::as_str) {
                Some("healthy") => "service_healthy",
                Some("complete") => "service_completed_successfully",
                _ => "service_started",
            };
            if condition == "service_completed_successfully" {
                services[name.as_str()]["restart"] = "no".into();
            }
            let Some(waiting) = services.get_mut(other) else {
                return Err(Failure::invalid(format!(
                    "containers.{name}.before names no container `{other}`"
                )));
            };
            waiting["depends_on"][name.as_str()] = json!({"condition": condition});
        }
    }
    let free = services.iter().find(|(_, service)| service.get("depends_on").is_none());
    let Some(owner) = free.map(|(name, _)| name.clone()) else {
        return Err(Failure::invalid("every container waits for another one: `before` goes in a circle"));
    };
    let ports: Vec<Value> = service
        .and_then(|service| service.get("ports"))
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(_, port)| publish(port))
        .collect();
    for (name, service) in services.iter_mut() {
        if *name != owner {
            service["network_mode"] = format!("service:{owner}").into();
        } else if !ports.is_empty() {
            service["ports"] = Value::Array(ports.clone());
        }
    }
    Ok(())
}

fn publish(port: &Value) -> Option<Value> {
    let number = port.get("port")?.as_u64()?;
    let target = port.get("targetPort").and_then(Value::as_u64).unwrap_or(number);
    let udp = if port.get("protocol").and_then(Value::as_str) == Some("UDP") { "/udp" } else { "" };
    Some(format!("{number}:{target}{udp}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_compose_reads_them() {
        assert_eq!(cpus("250m").unwrap(), "0.25");
        assert_eq!(cpus("1.5").unwrap(), "1.5");
        assert_eq!(bytes("128Mi"), Some(128 << 20));
        assert_eq!(bytes("1.5G"), Some(1_500_000_000));
        assert_eq!(bytes("42"), Some(42));
    }
}
