//! Where a test's shards are: a folder, or a bucket of a real server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use harness::s3_server::S3Server;
use parquet::data_type::Int32Type;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use storage::{AccessKey, ObjectMeta, Payload, PutCondition, StorageConfig, Store, Stores};
use tempfile::TempDir;

/// A folder or a bucket.
pub struct Place {
    /// What is made of a folder, and goes with it.
    _folder: Option<TempDir>,
    server: Option<S3Server>,
    config: StorageConfig,
    root: String,
    /// Stores of all prefixes.
    pub stores: Arc<Stores>,
}

impl Place {
    /// An empty folder.
    pub fn folder() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = format!("{}/", folder.path().display());
        let config = StorageConfig::default();
        Self {
            _folder: Some(folder),
            server: None,
            stores: Arc::new(Stores::new(&config)),
            config,
            root,
        }
    }

    /// An empty bucket; none where the server is not installed, which it says.
    pub fn bucket() -> Option<Self> {
        let server = S3Server::start()?;
        server.create_bucket("bucket");
        let config = StorageConfig {
            endpoint: Some(server.endpoint()),
            region: Some("us-east-1".to_owned()),
            access_key: Some(AccessKey {
                id: server.access_key().to_owned(),
                secret: server.secret_key().to_owned(),
            }),
            retry_budget: Duration::from_secs(1),
            ..StorageConfig::default()
        };
        Some(Self {
            _folder: None,
            server: Some(server),
            stores: Arc::new(Stores::new(&config)),
            config,
            root: "s3://bucket/".to_owned(),
        })
    }

    /// The server of a bucket.
    pub fn server(&self) -> &S3Server {
        self.server.as_ref().unwrap()
    }

    /// How the place is reached.
    pub fn config(&self) -> &StorageConfig {
        &self.config
    }

    /// URI of a prefix.
    pub fn uri(&self, prefix: &str) -> String {
        format!("{}{prefix}", self.root)
    }

    /// The store of a prefix.
    pub fn store(&self, prefix: &str) -> Arc<dyn Store> {
        self.stores.open(&self.uri(prefix)).unwrap()
    }

    /// The store of the main prefix.
    pub fn main(&self) -> Arc<dyn Store> {
        self.store("main/")
    }

    /// The store of the output prefix.
    pub fn output(&self) -> Arc<dyn Store> {
        self.store("out/")
    }

    /// Writes main shards of these numbers.
    pub async fn make_main(&self, shards: std::ops::Range<usize>) {
        for shard in shards {
            write(&*self.main(), &path(shard), file(rows(shard), None)).await;
        }
    }

    /// Shards of the output, by path.
    pub async fn shards(&self) -> BTreeMap<String, ObjectMeta> {
        let output = self.output();
        let pages: Vec<_> = output.list_shards().try_collect().await.unwrap();
        let shards = pages.into_iter().flat_map(|page| page.shards);
        shards.map(|shard| (shard.key.clone(), shard)).collect()
    }

    /// Names of what is beside the output.
    pub async fn beside(&self) -> Vec<String> {
        let listed = self.output().list_folder("_sidecar/").await.unwrap();
        listed.into_iter().map(|object| object.key).collect()
    }
}

/// Path of a main shard.
pub fn path(shard: usize) -> String {
    format!("part {}/{shard:04}.parquet", shard % 3)
}

/// Rows of a main shard.
pub fn rows(shard: usize) -> usize {
    10 + shard % 3
}

/// A Parquet file of so many rows, made by the pipeline of a digest if there is one.
pub fn file(rows: usize, digest: Option<&str>) -> Vec<u8> {
    let schema = parse_message_type("message shard { required int32 row; }").unwrap();
    let metadata = digest.map(|digest| {
        let pair = KeyValue::new("sidecarjob.digest".to_owned(), digest.to_owned());
        vec![pair]
    });
    let properties = WriterProperties::builder()
        .set_key_value_metadata(metadata)
        .build();
    let mut writer =
        SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<i32> = (0..rows).map(|row| i32::try_from(row).unwrap()).collect();
    column
        .typed::<Int32Type>()
        .write_batch(&values, None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// Writes an object, whatever is there.
pub async fn write(store: &dyn Store, key: &str, bytes: Vec<u8>) -> ObjectMeta {
    let condition = match store.head(key).await {
        Ok(found) => PutCondition::Replace(found.etag),
        Err(error) if error.is_not_found() => PutCondition::Create,
        Err(error) => panic!("{error}"),
    };
    store
        .put(key, Payload::new(bytes), condition)
        .await
        .unwrap();
    store.head(key).await.unwrap()
}
