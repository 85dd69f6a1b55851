//! The part of the OpenAPI document that is alike for every path: who may use it.

use serde_json::{Value, json};

use super::access;

/// The answers to those who may not.
const REFUSALS: [(&str, &str); 3] = [
    ("401", "The API has users, and this is none of them"),
    (
        "403",
        "The user's role is too small, or another origin or name is asked for",
    ),
    ("429", "Too many wrong tokens"),
];
const METHODS: [&str; 6] = ["get", "head", "put", "post", "delete", "patch"];

/// Adds the users of the API to its document.
pub fn add_users(document: &mut Value) {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, item) in paths.into_iter().flatten() {
        let operations = item.as_object_mut().into_iter().flatten();
        let operations = operations.filter(|(method, _)| METHODS.contains(&&***method));
        for (method, operation) in operations {
            if access::is_public(method == "get" || method == "head", path) {
                operation["security"] = json!([]);
                continue;
            }
            operation["security"] = json!([{"token": []}]);
            let Some(responses) = operation["responses"].as_object_mut() else {
                continue;
            };
            for (status, description) in REFUSALS {
                let problem = json!({
                    "description": description,
                    "content": {"application/problem+json": {
                        "schema": {"$ref": "#/components/schemas/Problem"},
                    }},
                });
                responses.entry(status).or_insert(problem);
            }
        }
    }
    document["components"]["securitySchemes"] = json!({"token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of auster api token, where the API has users",
    }});
}
