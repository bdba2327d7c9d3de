//! Objects behind URLs: buckets of S3, Google Cloud Storage and Azure, and files of web servers, through the crate
//! object_store, which also tries again while a server does not answer. Its functions are asynchronous. These
//! here wait, and any thread may call them.
//!
//! Credentials come from the environment, by the names that each service's own tools use ([`SERVICES`]). If they are
//! missing we say which, because the crate would otherwise ask the metadata service of a cloud's virtual machines,
//! and on other machines wait for it in vain. Who wants that names the service's address in the environment.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::{Path as ObjectPath, PathPart};
use object_store::{
    BackoffConfig, ClientConfigKey, Error, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};

use super::{Listed, Storage};
use crate::error::{Failure, Result};
use crate::screen::say;

/// How many small objects are read or written at once. Each takes tens of milliseconds in a cloud, whatever its size.
const IN_FLIGHT_COUNT: usize = 32;
/// How long a server that does not answer, or answers that it is too busy, is asked again, unless [`RETRY_VARIABLE`]
/// says otherwise. Requests are not signed again, so it has to be less than five minutes.
const RETRY_S: u64 = 180;
const RETRY_VARIABLE: &str = "IDLEWISE_RETRY_S";
/// How long a server may be silent in the middle of a request, unless it is given up sooner.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a connection may take, likewise.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a whole request may take: the transfer of a log.
const REQUEST: &str = "1 day";
/// How long a server may not answer before we say that we are waiting for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long we do not say it again, whichever request waits.
const SAID_AGE: Duration = Duration::from_secs(10);

/// What the environment has to say for a scheme.
struct Service {
    scheme: &'static str,
    /// Sets of variables. One whole set is enough.
    ways: &'static [&'static [&'static str]],
    /// A variable that is needed with all of them.
    always: Option<&'static str>,
    /// Variables with the URL of another server.
    servers: &'static [&'static str],
}

const SERVICES: [Service; 5] = [
    Service {
        scheme: "s3",
        ways: &[
            &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
            &["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"],
            &["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"],
            &["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"],
            &["AWS_METADATA_ENDPOINT"],
            &["AWS_SKIP_SIGNATURE"],
        ],
        always: None,
        servers: &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
    },
    Service {
        scheme: "gs",
        ways: &[
            &["GOOGLE_APPLICATION_CREDENTIALS"],
            &["GOOGLE_SERVICE_ACCOUNT"],
            &["GOOGLE_SERVICE_ACCOUNT_PATH"],
            &["GOOGLE_SERVICE_ACCOUNT_KEY"],
            &["GCE_METADATA_HOST"],
            &["GOOGLE_SKIP_SIGNATURE"],
        ],
        always: None,
        servers: &["GOOGLE_BASE_URL"],
    },
    Service {
        scheme: "az",
        ways: &[
            &["AZURE_STORAGE_ACCOUNT_KEY"],
            &["AZURE_STORAGE_ACCESS_KEY"],
            &["AZURE_STORAGE_SAS_TOKEN"],
            &["AZURE_STORAGE_SAS_KEY"],
            &["AZURE_STORAGE_TOKEN"],
            &["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"],
            &["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"],
            &["AZURE_USE_AZURE_CLI"],
            &["IDENTITY_ENDPOINT"],
            &["AZURE_SKIP_SIGNATURE"],
        ],
        always: Some("AZURE_STORAGE_ACCOUNT_NAME"),
        servers: &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"],
    },
    Service { scheme: "http", ways: &[], always: None, servers: &[] },
    Service { scheme: "https", ways: &[], always: None, servers: &[] },
];

impl Service {
    /// What the environment lacks.
    fn lacks(&self, has: impl Fn(&str) -> bool) -> Option<String> {
        if let Some(name) = self.always.filter(|name| !has(name)) {
            return Some(format!("{name} is not set"));
        }
        let way = self.ways.first()?;
        if self.whole(&has).is_some() {
            return None;
        }
        let begun = self.ways.iter().find(|way| way.iter().any(|name| has(name)));
        let missing: Vec<&str> =
            begun.unwrap_or(way).iter().copied().filter(|name| !has(name)).collect();
        let verb = if missing.len() == 1 { "is" } else { "are" };
        Some(format!("no credentials: {} {verb} not set", missing.join(" and ")))
    }

    fn whole(&self, has: impl Fn(&str) -> bool) -> Option<&[&'static str]> {
        self.ways.iter().copied().find(|way| way.iter().all(|name| has(name)))
    }

    /// Says where the credentials come from: what to look at if they are refused.
    fn source(&self, has: impl Fn(&str) -> bool) -> String {
        match self.whole(has) {
            Some(way) => self.always.iter().chain(way).copied().collect::<Vec<_>>().join(" and "),
            None if self.scheme == "gs" => {
                "what `gcloud auth application-default login` wrote".to_owned()
            }
            None => "the server's own rules, as it is asked without credentials".to_owned(),
        }
    }
}

fn service(scheme: &str) -> Option<&'static Service> {
    SERVICES.iter().find(|service| service.scheme == scheme)
}

/// A variable of the environment, unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// An object or a folder behind a URL. Nothing is asked until it is used.
#[derive(Clone)]
pub struct Remote {
    /// Without a slash at the end.
    url: String,
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
}

impl Remote {
    /// Names what is behind a URL.
    ///
    /// # Errors
    /// Fails if the URL is wrong or the environment has no credentials for it.
    pub fn open(url: &str) -> Result<Self> {
        let fail = |fault: &dyn std::fmt::Display| Failure::new(format_args!("{url}: {fault}"));
        let Some((scheme, rest)) = url.split_once("://") else { return Err(fail(&"not a URL")) };
        let Some(service) = service(scheme) else {
            return Err(fail(&"no such kind of storage; there are s3, gs, az, http and https"));
        };
        if rest.contains(['?', '#']) {
            return Err(fail(&"what begins with ? or # is not passed on; leave it out"));
        }
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(fail(&"no bucket or server is named"));
        }
        let path = ObjectPath::from_url_path(path).map_err(|error| fail(&error))?;
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        let root = format!("{scheme}://{bucket}");
        let store = match stores.get(&root) {
            Some(store) => store.clone(),
            None => {
                let store = connect(service, bucket).map_err(|fault| fail(&fault))?;
                stores.entry(root).or_insert(store).clone()
            }
        };
        Ok(Remote { url: url.trim_end_matches('/').to_owned(), store, path })
    }

    /// Its own URL. It may have a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of an object in this folder.
    pub fn url_below(&self, name: &str) -> String {
        let escaped = name.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        format!("{}/{escaped}", self.url)
    }

    fn below(&self, name: &str) -> ObjectPath {
        let names = name.split('/').filter(|name| !name.is_empty());
        // As it is, because a part that is made from a text has % instead of some characters.
        let part = |name| PathPart::parse(name).unwrap_or_else(|_| PathPart::from(name));
        names.fold(self.path.clone(), |path, name| path.join(part(name)))
    }

    fn fail(&self, verb: &str, name: &str) -> impl Fn(Error) -> Failure {
        let url = if name.is_empty() { self.url.clone() } else { self.url_below(name) };
        move |error| {
            let service = url.split("://").next().and_then(service);
            let advice = match service.filter(|_| is_refused(&error)) {
                Some(service) => {
                    format!("; check {}", service.source(|name| variable(name).is_some()))
                }
                None => String::new(),
            };
            Failure::new(format_args!("cannot {verb} {url}: {}{advice}", cause(&error)))
        }
    }

    fn listed(folder: &ObjectPath, about: &ObjectMeta) -> Option<Listed> {
        let parts = about.location.prefix_match(folder)?;
        let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
        // A web console makes an empty object for a folder.
        (!name.is_empty()).then_some(Listed { name, byte_count: about.size })
    }

    /// Returns the objects in a folder and in all folders below it.
    ///
    /// # Errors
    /// Fails if they cannot be listed.
    pub fn walk(&self) -> Result<Vec<Listed>> {
        let found = self.wait(self.store.list(Some(&self.path)).try_collect::<Vec<_>>())?;
        let found = found.map_err(self.fail("list", ""))?;
        Ok(found.iter().filter_map(|about| Self::listed(&self.path, about)).collect())
    }

    /// Returns what changes with the object's content, whatever it is; `None` if the server does not say.
    ///
    /// # Errors
    /// Fails if the object is not there or cannot be read.
    pub fn version(&self) -> Result<Option<String>> {
        let about = self.wait(self.store.head(&self.path))?.map_err(self.fail("read", ""))?;
        Ok(self.version_of(&about))
    }

    fn version_of(&self, about: &ObjectMeta) -> Option<String> {
        // A weak tag may stay when bytes change.
        let tag = about.e_tag.as_deref().filter(|tag| !tag.starts_with("W/"))?;
        Some(format!("{} {} {tag}", self.url, about.size))
    }

    /// Writes the object's content to a file, and returns the version that this is, as [`Remote::version`] does. Parts
    /// that are asked for again after an interruption are of the same version.
    ///
    /// # Errors
    /// Fails if the object cannot be read to its end, or if the disk is full.
    pub fn download(&self, to: &mut File) -> Result<Option<String>> {
        let fail = self.fail("read", "");
        runtime()?.block_on(async {
            let found = self.patiently(self.store.get(&self.path)).await.map_err(&fail)?;
            let version = self.version_of(&found.meta);
            let mut stream = found.into_stream();
            while let Some(bytes) = self.patiently(stream.try_next()).await.map_err(&fail)? {
                to.write_all(&bytes).map_err(|error| {
                    Failure::new(format_args!(
                        "cannot keep {} in {}: {error}; set TMPDIR to a place with more room",
                        self.url,
                        std::env::temp_dir().display()
                    ))
                })?;
            }
            Ok(version)
        })
    }

    /// Waits for an answer, and says so if it takes long: at the latest after half the time that it has.
    async fn patiently<T>(&self, answer: impl Future<Output = T>) -> T {
        static SAID: Mutex<Option<Instant>> = Mutex::new(None);
        let mut answer = std::pin::pin!(answer);
        let patience = retry().map_or(PATIENCE, |retry| within(retry / 2, PATIENCE));
        if let Ok(answer) = tokio::time::timeout(patience, &mut answer).await {
            return answer;
        }
        {
            let said = &mut *SAID.lock().unwrap_or_else(PoisonError::into_inner);
            if said.is_none_or(|at| at.elapsed() >= SAID_AGE) {
                *said = Some(Instant::now());
                say(format_args!(
                    "idlewise: waiting for {}, which does not answer; ctrl-c ends it",
                    self.url
                ));
            }
        }
        answer.await
    }

    /// The same, where nothing else is done meanwhile.
    fn wait<T>(&self, answer: impl Future<Output = T>) -> Result<T> {
        Ok(runtime()?.block_on(self.patiently(answer)))
    }
}

impl Storage for Remote {
    fn create(&self, folder: &str) -> Result<()> {
        self.folders(folder).map(drop)
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let path = self.below(folder);
        let found = self.wait(self.store.list_with_delimiter(Some(&path)))?;
        let found = found.map_err(self.fail("list", folder))?;
        Ok(found.objects.iter().filter_map(|about| Self::listed(&path, about)).collect())
    }

    fn folders(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.below(folder);
        let found = self.wait(self.store.list_with_delimiter(Some(&path)))?;
        let found = found.map_err(self.fail("list", folder))?;
        let name = |path: &ObjectPath| path.filename().map(str::to_owned);
        Ok(found.common_prefixes.iter().filter_map(name).collect())
    }

    fn read(&self, names: &[String], byte_count_max: u64) -> Result<Vec<Option<Vec<u8>>>> {
        let read = |name: String| async move {
            let object = async {
                let found = self.store.get(&self.below(&name)).await?;
                match found.meta.size > byte_count_max {
                    true => Ok(None),
                    false => found.bytes().await.map(|bytes| Some(bytes.to_vec())),
                }
            };
            match self.patiently(object).await {
                Ok(Some(bytes)) => Ok(Some(bytes)),
                Ok(None) => Err(Failure::new(format_args!(
                    "{}: it has more than {} MiB, which no such file has; move it away",
                    self.url_below(&name),
                    byte_count_max >> 20
                ))),
                Err(error) if is_absent(&error) => Ok(None),
                Err(error) => Err(self.fail("read", &name)(error)),
            }
        };
        let all = stream::iter(names.to_vec()).map(read).buffered(IN_FLIGHT_COUNT);
        runtime()?.block_on(all.try_collect())
    }

    fn write(&self, files: Vec<(String, Vec<u8>)>) -> Result<()> {
        let write = |(name, bytes): (String, Vec<u8>)| async move {
            let path = self.below(&name);
            let put = self.patiently(self.store.put(&path, bytes.into())).await;
            put.map(drop).map_err(self.fail("write", &name))
        };
        let all = stream::iter(files).map(write).buffer_unordered(IN_FLIGHT_COUNT);
        runtime()?.block_on(all.try_collect())
    }

    fn remove(&self, names: &[String]) -> Result<()> {
        let paths: Vec<_> = names.iter().map(|name| Ok(self.below(name))).collect();
        let removed = self.store.delete_stream(stream::iter(paths).boxed());
        let results: Vec<Result<ObjectPath, Error>> = self.wait(removed.collect())?;
        match results.into_iter().filter_map(Result::err).find(|error| !is_absent(error)) {
            Some(error) => Err(self.fail("remove objects of", "")(error)),
            None => Ok(()),
        }
    }
}

/// A connection for each bucket or server, with what it remembers, such as tokens.
static STORES: LazyLock<Mutex<HashMap<String, Arc<dyn ObjectStore>>>> =
    LazyLock::new(Mutex::default);

/// One thread does the waiting for all others, so that connections are served when no other thread is in here.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: LazyLock<Result<Runtime, String>> = LazyLock::new(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().map_err(|error| error.to_string())
    });
    RUNTIME
        .as_ref()
        .map_err(|error| Failure::new(format_args!("cannot start a thread for requests: {error}")))
}

/// How long a server is asked again.
fn retry() -> Result<Duration, String> {
    let seconds = match variable(RETRY_VARIABLE) {
        Some(text) => match text.parse() {
            Ok(seconds @ 0..=290) => seconds,
            _ => return Err(format!("{RETRY_VARIABLE}: '{text}' is not a number from 0 to 290")),
        },
        None => RETRY_S,
    };
    Ok(Duration::from_secs(seconds))
}

/// The time that one request gets: never more than all of them have. Where nothing is asked again, it gets its own.
fn within(all: Duration, one: Duration) -> Duration {
    if all.is_zero() { one } else { one.min(all) }
}

fn connect(service: &Service, bucket: &str) -> Result<Arc<dyn ObjectStore>, String> {
    let has = |name: &str| variable(name).is_some();
    // What `gcloud auth application-default login` writes.
    let gcloud = || {
        let home = std::env::home_dir()?;
        Some(home.join(".config/gcloud/application_default_credentials.json"))
    };
    let has_file = service.scheme == "gs" && gcloud().is_some_and(|path| path.exists());
    if !has_file && let Some(lack) = service.lacks(has) {
        return Err(format!("{lack}; docs/sweep.md lists the ways"));
    }
    let retry_timeout = retry()?;
    let silence = format!("{} seconds", within(retry_timeout, SILENCE).as_secs());
    let connect = format!("{} seconds", within(retry_timeout, CONNECT).as_secs());
    let backoff = BackoffConfig::default();
    // The time ends it, not the number. It is looked at after a pause, which must not be long for that.
    let max_backoff = (retry_timeout / 4).clamp(backoff.init_backoff, backoff.max_backoff);
    let retry = RetryConfig {
        max_retries: if retry_timeout.is_zero() { 0 } else { usize::MAX },
        retry_timeout,
        backoff: BackoffConfig { max_backoff, ..backoff },
    };
    let server = match service.servers.iter().find_map(|name| Some((name, variable(name)?))) {
        // The crate panics at some of these.
        Some((name, url)) if !is_server(&url) => {
            return Err(format!("{name}: '{url}' is not a URL such as http://localhost:9000"));
        }
        // The crate adds a slash even after one.
        Some((_, url)) => Some(url.trim_end_matches('/').to_owned()),
        None => None,
    };
    let is_plain =
        service.scheme == "http" || server.as_ref().is_some_and(|url| url.starts_with("http:"));
    let options = [
        (ClientConfigKey::Timeout, REQUEST),
        (ClientConfigKey::ReadTimeout, &silence[..]),
        (ClientConfigKey::ConnectTimeout, &connect),
        (ClientConfigKey::AllowHttp, if is_plain { "true" } else { "false" }),
    ];
    // The second one to do so fails, which is fine. The client has no other.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store: Result<Arc<dyn ObjectStore>, Error> = match service.scheme {
        "s3" => {
            let mut plain = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
            if let Some(url) = server {
                plain = plain.with_endpoint(url);
            }
            let set = |builder: AmazonS3Builder, (key, value): (ClientConfigKey, &str)| {
                builder.with_config(AmazonS3ConfigKey::Client(key), value)
            };
            options.into_iter().fold(plain, set).build().map(|store| Arc::new(store) as _)
        }
        "gs" => {
            let mut plain =
                GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry);
            if let Some(url) = server {
                plain = plain.with_base_url(&url);
            }
            let set = |builder: GoogleCloudStorageBuilder,
                       (key, value): (ClientConfigKey, &str)| {
                builder.with_config(GoogleConfigKey::Client(key), value)
            };
            options.into_iter().fold(plain, set).build().map(|store| Arc::new(store) as _)
        }
        "az" => {
            let mut plain =
                MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retry);
            if let Some(url) = server {
                plain = plain.with_endpoint(url);
            }
            let set = |builder: MicrosoftAzureBuilder, (key, value): (ClientConfigKey, &str)| {
                builder.with_config(AzureConfigKey::Client(key), value)
            };
            options.into_iter().fold(plain, set).build().map(|store| Arc::new(store) as _)
        }
        scheme => {
            let plain =
                HttpBuilder::new().with_url(format!("{scheme}://{bucket}")).with_retry(retry);
            let set = |builder: HttpBuilder, (key, value): (ClientConfigKey, &str)| {
                builder.with_config(key, value)
            };
            options.into_iter().fold(plain, set).build().map(|store| Arc::new(store) as _)
        }
    };
    store.map_err(|error| format!("{}; check {}", cause(&error), service.source(has)))
}

/// Whether a text is the URL of a server.
fn is_server(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

/// Whether the object is missing, and not the whole bucket.
fn is_absent(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !code(&error.to_string()).is_some_and(is_of_bucket)
}

/// Whether it's the credentials. When it lists, the crate keeps the status in the text only.
fn is_refused(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
        || ["401", "403"].iter().any(|status| text.contains(&format!("status code: {status} ")))
}

fn is_of_bucket(code: &str) -> bool {
    matches!(code, "NoSuchBucket" | "ContainerNotFound")
}

/// What a service calls the error: its answers are XML.
fn code(text: &str) -> Option<&str> {
    between(text, "Code")
}

fn between<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    Some(rest.split_once(&format!("</{tag}>"))?.0.trim())
}

/// Says in one line what went wrong. The crate's own messages are long, with the request and all retries.
fn cause(error: &Error) -> String {
    let text = error.to_string();
    if let Some(code) = code(&text) {
        return match (is_of_bucket(code), between(&text, "Message")) {
            (true, _) => format!("there is no such bucket ({code})"),
            (_, Some(message)) => format!("{} ({code})", message.trim_end_matches('.')),
            (_, None) => format!("the server says {code}"),
        };
    }
    match error {
        // Some questions are answered without a text.
        Error::NotFound { .. } => "there is no such object or bucket".to_owned(),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            "the server refuses it to these credentials".to_owned()
        }
        _ => {
            let mut deepest: &dyn std::error::Error = error;
            while let Some(source) = deepest.source() {
                deepest = source;
            }
            let text = deepest.to_string();
            text.lines().next().unwrap_or_default().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_lacks_is_named() {
        let lacks =
            |scheme, names: &[&str]| service(scheme).unwrap().lacks(|name| names.contains(&name));
        assert_eq!(
            lacks("s3", &[]).unwrap(),
            "no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"
        );
        assert_eq!(
            lacks("s3", &["AWS_ACCESS_KEY_ID"]).unwrap(),
            "no credentials: AWS_SECRET_ACCESS_KEY is not set"
        );
        assert_eq!(
            lacks("s3", &["AWS_ROLE_ARN"]).unwrap(),
            "no credentials: AWS_WEB_IDENTITY_TOKEN_FILE is not set"
        );
        assert_eq!(lacks("s3", &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]), None);
        assert_eq!(lacks("s3", &["AWS_SKIP_SIGNATURE"]), None);
        assert!(lacks("gs", &[]).unwrap().contains("GOOGLE_APPLICATION_CREDENTIALS is not set"));
        let key = "AZURE_STORAGE_ACCOUNT_KEY";
        assert_eq!(lacks("az", &[key]).unwrap(), "AZURE_STORAGE_ACCOUNT_NAME is not set");
        assert_eq!(lacks("az", &[key, "AZURE_STORAGE_ACCOUNT_NAME"]), None);
        assert_eq!(lacks("https", &[]), None);
    }

    #[test]
    fn where_credentials_come_from_is_named() {
        let source =
            |scheme, names: &[&str]| service(scheme).unwrap().source(|name| names.contains(&name));
        let both = ["AWS_SECRET_ACCESS_KEY", "AWS_SKIP_SIGNATURE", "AWS_ACCESS_KEY_ID"];
        assert_eq!(source("s3", &both), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
        let token = "AZURE_STORAGE_SAS_TOKEN";
        assert_eq!(source("az", &[token]), format!("AZURE_STORAGE_ACCOUNT_NAME and {token}"));
        assert!(source("gs", &[]).contains("gcloud auth application-default login"));
        assert!(source("https", &[]).contains("without credentials"));
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for text in ["http://localhost:9000", "https://h/account/", "http://[::1]:1"] {
            assert!(is_server(text), "{text}");
        }
        for text in ["localhost:9000", "localhost", "http://", "s3://h", "http://h:x"] {
            assert!(!is_server(text), "{text}");
        }
    }

    #[test]
    fn wrong_urls_are_refused() {
        for (url, part) in [
            ("s4://bucket/x", "no such kind of storage"),
            ("http:///x", "no bucket or server is named"),
            ("https://host/x?sign=1", "leave it out"),
        ] {
            let message = Remote::open(url).err().expect(url).text();
            assert!(message.starts_with(url) && message.contains(part), "{message}");
        }
    }

    #[test]
    fn names_survive_their_url() {
        let folder = Remote::open("http://127.0.0.1:9/a%20b/").unwrap();
        let name = "100%/x?#y z.parquet";
        let again = Remote::open(&folder.url_below(name)).unwrap();
        assert_eq!(again.path, folder.below(name));
        assert_eq!(folder.path.as_ref(), "a b");
    }

    #[test]
    fn an_answer_of_a_service_becomes_one_line() {
        let body = "Error performing GET http://h/b/x in 3ms - Server returned non-2xx status code: 404 Not Found: \
                    <?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code><Message>The bucket.</Message></Error>";
        let error = |body: &str| Error::NotFound { path: "x".to_owned(), source: body.into() };
        assert_eq!(cause(&error(body)), "there is no such bucket (NoSuchBucket)");
        assert!(!is_absent(&error(body)));
        let key = body.replace("NoSuchBucket", "NoSuchKey");
        assert_eq!(cause(&error(&key)), "The bucket (NoSuchKey)");
        assert!(is_absent(&error(&key)) && is_absent(&error("")));
        let listed = |status: &str| Error::Generic {
            store: "S3",
            source: body.replace("404 Not Found", status).into(),
        };
        assert!(is_refused(&listed("403 Forbidden")) && is_refused(&listed("401 Unauthorized")));
        assert!(!is_refused(&listed("404 Not Found")) && !is_refused(&error(body)));
    }
}
