use proptest::prelude::*;

use super::*;
use crate::{Column, StructField, ops::FilterName};
