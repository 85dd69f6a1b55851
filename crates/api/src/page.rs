//! The dashboard: one page whose files are in the program, so that it needs nothing else.
//!
//! Each view has a path of its own, and all of them answer with the same document; the script in it
//! reads the path. The files are kept compressed, as nearly every browser asks for compressed
//! files.

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clock::Fnv1a;

use super::compressed::accepts_gzip;
use super::problem::Problem;

/// The page loads only what this address serves, and runs no script but its own.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'; object-src 'none'";

/// Paths of the views.
const VIEWS: [&str; 8] = [
    "/",
    "/why",
    "/switches",
    SWITCH,
    "/qos",
    "/channel",
    "/events",
    "/cluster",
];

/// The view of one switch.
const SWITCH: &str = "/switch/{dpid}";

/// A file of the page.
#[derive(Clone, Copy)]
struct File {
    kind: &'static str,
    gzipped: &'static [u8],
}

const DOCUMENT: File = File {
    kind: "text/html; charset=utf-8",
    gzipped: include_bytes!("../web/dist/index.html.gz"),
};

const OTHERS: [(&str, File); 3] = [
    (
        "/app.js",
        File {
            kind: "text/javascript; charset=utf-8",
            gzipped: include_bytes!("../web/dist/app.js.gz"),
        },
    ),
    (
        "/app.css",
        File {
            kind: "text/css; charset=utf-8",
            gzipped: include_bytes!("../web/dist/app.css.gz"),
        },
    ),
    (
        "/icon.svg",
        File {
            kind: "image/svg+xml",
            gzipped: include_bytes!("../web/dist/icon.svg.gz"),
        },
    ),
];

pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let views = VIEWS.map(|path| (path, DOCUMENT));
    let all = views.into_iter().chain(OTHERS);
    all.fold(Router::new(), |router, (path, file)| {
        let tag = format!("\"{:016x}\"", Fnv1a::of(file.gzipped));
        let answer = move |request: Request| {
            let answer = file.answer(request.headers(), &tag);
            async move { answer }
        };
        router.route(path, get(answer))
    })
}

/// Whether a file of the page is at a path.
pub fn serves(path: &str) -> bool {
    let files = OTHERS.iter().map(|(path, _)| *path);
    let is_switch = path
        .strip_prefix("/switch/")
        .is_some_and(|dpid| !dpid.is_empty() && !dpid.contains('/'));
    is_switch
        || VIEWS
            .into_iter()
            .chain(files)
            .any(|of_file| of_file == path)
}

impl File {
    fn answer(self, asked: &HeaderMap, tag: &str) -> Response {
        let mut answer = match (accepts_gzip(asked), has(asked, tag)) {
            (false, _) => {
                let detail = "this file is kept compressed: accept gzip (curl --compressed)";
                return Problem::new(StatusCode::NOT_ACCEPTABLE, detail).into_response();
            }
            (true, true) => StatusCode::NOT_MODIFIED.into_response(),
            (true, false) => Bytes::from_static(self.gzipped).into_response(),
        };
        let headers = answer.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(tag) {
            headers.insert(header::ETAG, tag);
        }
        for (name, value) in [
            (header::CONTENT_TYPE, self.kind),
            (header::CONTENT_ENCODING, "gzip"),
            (header::VARY, "accept-encoding"),
            // The browser asks each time, so that a new program's page is seen at once.
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

/// Whether the client has the file of this tag.
fn has(asked: &HeaderMap, tag: &str) -> bool {
    let values = asked.get_all(header::IF_NONE_MATCH).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut tags = texts.flat_map(|text| text.split(',')).map(str::trim);
    tags.any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt;

    use super::*;

    async fn ask(path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        router::<()>().oneshot(request).await.unwrap()
    }

    const GZIP: (&str, &str) = ("accept-encoding", "br, gzip;q=0.5");

    #[tokio::test]
    async fn every_view_is_the_page_and_runs_nothing_from_elsewhere() {
        let paths = ["/", "/why?src=10.0.0.1", "/switch/1", "/events", "/channel"];
        for path in paths.into_iter().chain(["/app.js", "/app.css"]) {
            let response = ask(path, &[GZIP]).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let header = |name| response.headers().get(name).unwrap().to_str().unwrap();
            assert!(header("content-security-policy").starts_with("default-src 'self'"));
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("content-encoding"), "gzip");
            let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
            assert_eq!(body[..2], [0x1f, 0x8b], "{path}: gzip");
            assert_eq!(body[4..8], [0; 4], "{path}: no time is in it");
        }
        assert_eq!(
            ask("/app.map", &[GZIP]).await.status(),
            StatusCode::NOT_FOUND
        );
    }

    #[tokio::test]
    async fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = ask("/app.js", &[GZIP]).await;
        let tag = first.headers().get(header::ETAG).unwrap().to_str().unwrap();
        let weak = format!("\"other\", W/{tag}");
        for has in [tag, weak.as_str(), "*"] {
            let again = ask("/app.js", &[GZIP, ("if-none-match", has)]).await;
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{has}");
        }
        let other = ask("/app.js", &[GZIP, ("if-none-match", "\"other\"")]).await;
        assert_eq!(other.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_client_without_gzip_is_answered_what_to_do() {
        for asked in [&[][..], &[("accept-encoding", "br, gzip;q=0")]] {
            let response = ask("/", asked).await;
            assert_eq!(response.status(), StatusCode::NOT_ACCEPTABLE, "{asked:?}");
        }
        assert_eq!(
            ask("/", &[("accept-encoding", "*")]).await.status(),
            StatusCode::OK
        );
    }

    #[test]
    fn the_first_load_is_small() {
        let others = OTHERS.iter().map(|(_, file)| file.gzipped.len());
        let bytes = DOCUMENT.gzipped.len() + others.sum::<usize>();
        assert!(bytes <= 120 << 10, "{bytes} bytes");
    }
}
