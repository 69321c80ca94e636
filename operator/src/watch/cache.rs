//! Objects as the operator keeps them, by name and by owner.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace and name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// From an object's metadata.
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Objects of one kind. Many read it, one watch for each namespace writes it.
#[derive(Debug)]
pub struct Cache<T> {
    kept: RwLock<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    objects: HashMap<ObjectKey, (String, Arc<T>)>,
    by_owner: HashMap<String, BTreeSet<ObjectKey>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            kept: RwLock::new(Kept {
                objects: HashMap::new(),
                by_owner: HashMap::new(),
            }),
        }
    }
}

impl<T: PartialEq> Cache<T> {
    /// Keeps `value` of `owner`. Whether it differs from what was kept.
    pub fn put(&self, key: ObjectKey, owner: &str, value: T) -> bool {
        let mut kept = self.write();
        if let Some((former, known)) = kept.objects.get(&key) {
            if former == owner && **known == value {
                return false;
            }
            let former = former.clone();
            kept.disown(&former, &key);
        }
        kept.by_owner
            .entry(owner.to_owned())
            .or_default()
            .insert(key.clone());
        kept.objects
            .insert(key, (owner.to_owned(), Arc::new(value)));
        true
    }
}

impl<T> Cache<T> {
    /// Forgets an object; its owner if it was known.
    pub fn remove(&self, key: &ObjectKey) -> Option<String> {
        let mut kept = self.write();
        let (owner, _) = kept.objects.remove(key)?;
        kept.disown(&owner, key);
        Some(owner)
    }

    /// After a whole listing of `namespace` (or of all): forgets what it did not have. What was
    /// forgotten, and of which owner.
    pub fn keep_only(
        &self,
        namespace: Option<&str>,
        listed: &HashSet<ObjectKey>,
    ) -> Vec<(ObjectKey, String)> {
        let gone: Vec<ObjectKey> = {
            let kept = self.read();
            let all = kept.objects.keys();
            all.filter(|key| namespace.is_none_or(|namespace| key.namespace == namespace))
                .filter(|key| !listed.contains(*key))
                .cloned()
                .collect()
        };
        let removed = gone.into_iter().filter_map(|key| {
            let owner = self.remove(&key)?;
            Some((key, owner))
        });
        removed.collect()
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        let kept = self.read();
        kept.objects.get(key).map(|(_, value)| Arc::clone(value))
    }

    /// The objects of an owner in its own namespace, by name. What names an owner elsewhere is
    /// forged: who may write there has no say here.
    pub fn owned(&self, namespace: &str, owner: &str) -> Vec<(ObjectKey, Arc<T>)> {
        let kept = self.read();
        let Some(keys) = kept.by_owner.get(owner) else {
            return Vec::new();
        };
        let own = keys.iter().filter(|key| key.namespace == namespace);
        let values = own.filter_map(|key| {
            let (_, value) = kept.objects.get(key)?;
            Some((key.clone(), Arc::clone(value)))
        });
        values.collect()
    }

    /// Where an owner's objects are.
    pub fn keys(&self, owner: &str) -> Vec<ObjectKey> {
        let kept = self.read();
        let keys = kept.by_owner.get(owner);
        keys.into_iter().flatten().cloned().collect()
    }

    /// All objects.
    pub fn all(&self) -> Vec<(ObjectKey, Arc<T>)> {
        let kept = self.read();
        let all = kept.objects.iter();
        all.map(|(key, (_, value))| (key.clone(), Arc::clone(value)))
            .collect()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Kept<T>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Kept<T>> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Kept<T> {
    fn disown(&mut self, owner: &str, key: &ObjectKey) {
        if let Some(keys) = self.by_owner.get_mut(owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_owner.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn only_a_difference_is_news() {
        let cache = Cache::default();
        assert!(cache.put(key("a", "x"), "owner", 1));
        assert!(!cache.put(key("a", "x"), "owner", 1));
        assert!(cache.put(key("a", "x"), "owner", 2));
        assert!(cache.put(key("a", "x"), "another", 2));
        assert!(cache.owned("a", "owner").is_empty());
        assert_eq!(cache.owned("a", "another").len(), 1);
    }

    #[test]
    fn what_is_in_another_namespace_is_nobodys() {
        let cache = Cache::default();
        for namespace in ["a", "b"] {
            cache.put(key(namespace, "x"), "owner", 1);
        }
        let own: Vec<ObjectKey> = cache
            .owned("a", "owner")
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(own, [key("a", "x")]);
        assert!(cache.owned("c", "owner").is_empty());
    }

    #[test]
    fn a_listing_of_one_namespace_forgets_nothing_of_another() {
        let cache = Cache::default();
        for namespace in ["a", "b"] {
            for name in ["x", "y"] {
                cache.put(key(namespace, name), namespace, 0);
            }
        }
        let listed = HashSet::from([key("a", "y")]);
        let gone = cache.keep_only(Some("a"), &listed);
        assert_eq!(gone, [(key("a", "x"), "a".to_owned())]);
        assert_eq!(cache.all().len(), 3);
        assert_eq!(cache.keep_only(None, &HashSet::new()).len(), 3);
        assert!(cache.owned("b", "b").is_empty());
    }
}
