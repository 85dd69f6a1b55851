//! The part of the OpenAPI document common to all paths: who may use a path, and the answers to a
//! request that cannot be carried out.

use serde_json::{Map, Value, json};

use super::access;

/// Answers of each path that is not public.
const REFUSALS: [(&str, &str); 4] = [
    ("401", "The API has users, and this is none of them"),
    (
        "403",
        "The user's role is too small, or another origin or name is asked for",
    ),
    ("429", "Too many wrong tokens"),
    ("503", "The controller is busy"),
];
/// Answers of each path that takes a body.
const OF_BODIES: [(&str, &str); 2] = [
    ("400", "The body is no JSON"),
    ("422", "What is wrong, by field"),
];
const METHODS: [&str; 6] = ["get", "head", "put", "post", "delete", "patch"];

/// Adds the users of the API and its problems to its document.
pub fn complete(document: &mut Value) {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, item) in paths.into_iter().flatten() {
        let operations = item.as_object_mut().into_iter().flatten();
        let operations = operations.filter(|(method, _)| METHODS.contains(&&***method));
        for (method, operation) in operations {
            let is_public = access::is_public(method == "get" || method == "head", path);
            let has_body = operation.get("requestBody").is_some();
            operation["security"] = match is_public {
                true => json!([]),
                false => json!([{"token": []}]),
            };
            let Some(responses) = operation["responses"].as_object_mut() else {
                continue;
            };
            let refusals = REFUSALS.iter().filter(|_| !is_public);
            let answers = refusals.chain(OF_BODIES.iter().filter(|_| has_body));
            for (status, description) in answers {
                let answer = || json!({"description": description});
                responses.entry(*status).or_insert_with(answer);
            }
            show_problems(responses);
        }
    }
    document["components"]["securitySchemes"] = json!({"token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of auster api token, where the API has users",
    }});
}

/// Describes a refusal as a problem detail, unless it states other content.
fn show_problems(responses: &mut Map<String, Value>) {
    for (_, response) in responses
        .iter_mut()
        .filter(|(status, _)| &***status >= "400")
    {
        if response.get("content").is_none() {
            response["content"] = json!({"application/problem+json": {
                "schema": {"$ref": "#/components/schemas/Problem"},
            }});
        }
    }
}
